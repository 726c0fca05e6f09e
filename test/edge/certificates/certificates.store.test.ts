import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { AppConfig } from "#src/config.ts"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import * as loop from "#src/edge/certificates/loop.ts"
import { listCertificates, renewCertificates } from "#src/edge/certificates/overview.ts"
import { certificateTables } from "#src/edge/certificates/tables.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { tidy } from "#src/loops/Housekeeping.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { TableRules } from "#src/store/table-rules.ts"
import { makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"
import { handleOf, makeProcess, store } from "./world.ts"

const dayMs = 86_400_000
const wildcard = "*.apps.localhost"

const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
  (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true }))
)

layer(store, { excludeTestServices: true })("certificates", (it) => {
  const clean = Effect.flatMap(Db, ({ engine: sql }) => Effect.orDie(sql`delete from edge_certificate`))
  /** A whole process with its loop, until the scope closes. */
  const run = (variables: Readonly<Record<string, string>> = {}) =>
    Layer.build(
      loop.layer.pipe(
        Layer.fresh,
        Layer.provide(AppConfig.layerWith({}, variables)),
        Layer.provide(Logger.layer([]))
      )
    )

  it.effect("the loop keeps the wildcard of the apps domain by itself, from the internal authority", () =>
    Effect.gen(function* () {
      yield* clean
      const one = yield* handleOf(null, wildcard)
      const certificates = yield* Certificates
      const { inspect } = yield* CertificateAuthority
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* run()
          yield* eventually("it is issued", certificates.served, (served) => served.has(wildcard))
        })
      )
      const found = yield* one.find
      assert.deepInclude(found, { state: "issued", issuer: "internal", error: undefined })
      assert.approximately(found.renewAt!.getTime(), Date.now() + 60 * dayMs, dayMs)
      assert.deepStrictEqual(found.nextLookAt, found.renewAt)
      const [file] = yield* certificates.files([wildcard, "unknown.example.com"])
      const leaf = Option.getOrThrow(inspect(Redacted.value(file!.pem)))
      assert.isTrue(leaf.trusted && leaf.covers("shop--main-0a1b2c.apps.localhost"))
      assert.isFalse(leaf.covers("a.b.apps.localhost") || leaf.covers("apps.localhost"))
      // Another apps domain takes its place.
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* run({ SVC_APPS_DOMAIN: "apps.example.net" })
          yield* eventually(
            "the other is there alone",
            certificates.served,
            (served) => [...served.keys()].join() === "*.apps.example.net"
          )
        })
      )
    })
  )

  it.effect("names that an earlier setting gave to another issuer are issued anew, once", () =>
    Effect.gen(function* () {
      const certificates = yield* Certificates
      yield* clean
      const org = yield* makeOrganization()
      const one = yield* handleOf(org.id, "www.switched.example.com")
      yield* one.want
      yield* (yield* makeProcess({})).round
      const before = yield* one.find
      assert.strictEqual(before.issuer, "internal")
      const port = yield* Effect.promise(() => freePort())
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* run({ SVC_ACME_DIRECTORY: `http://127.0.0.1:${port}/directory` })
          yield* eventually(
            "the other issuer was asked",
            one.find,
            ({ error }) => error?.type === "unreachable"
          )
          yield* eventually("the wildcard is issued", certificates.served, (served) => served.has(wildcard))
        })
      )
      // It is not there, and what was served still is.
      assert.deepInclude(yield* one.find, {
        state: "issued",
        issuer: "internal",
        fingerprint: before.fingerprint
      })
      const [wild] = (yield* listCertificates).filter(({ name }) => name === wildcard)
      assert.strictEqual(
        wild?.issuer,
        "internal",
        "no provider of DNS is set, so it is not for the public authority"
      )
    })
  )

  it.effect("the operator's files are served, looked at again, and left alone when they are wrong", () =>
    Effect.gen(function* () {
      yield* clean
      const { issue } = yield* CertificateAuthority
      const dir = yield* folder
      const [chain, key] = [path.join(dir, "chain.pem"), path.join(dir, "key.pem")]
      const write = Effect.fnUntraced(function* (host: string) {
        const issued = yield* issue({ hosts: [host] })
        fs.writeFileSync(chain, `a comment\n${issued.certificatePem}`)
        fs.writeFileSync(key, Redacted.value(issued.privateKeyPem))
      })
      const { round } = yield* makeProcess({ SVC_APPS_CERTIFICATE: chain, SVC_APPS_CERTIFICATE_KEY: key })
      const certificates = yield* Certificates
      const one = yield* handleOf(null, wildcard)
      yield* one.want
      yield* round
      const missing = yield* one.find
      assert.deepInclude(missing, { state: "pending" })
      assert.strictEqual(missing.error?.message, `The file ${key} cannot be read`)
      yield* write(wildcard)
      yield* one.due
      yield* round
      const first = yield* one.find
      assert.deepInclude(first, { state: "issued", issuer: "operator", error: undefined, renewAt: undefined })
      assert.isBelow(first.nextLookAt!.getTime(), Date.now() + 11 * 60_000)
      const [file] = yield* certificates.files([wildcard])
      assert.notInclude(Redacted.value(file!.pem), "comment")
      yield* one.due
      yield* round
      assert.strictEqual((yield* one.find).fingerprint, first.fingerprint)
      yield* write("*.elsewhere.example.com")
      yield* one.due
      yield* round
      assert.deepInclude(yield* one.find, {
        fingerprint: first.fingerprint,
        error: { message: `The file ${chain} is not for ${wildcard}`, type: "settings" }
      })
      yield* write(wildcard)
      yield* one.due
      yield* round
      assert.notStrictEqual((yield* one.find).fingerprint, first.fingerprint)
    })
  )

  it.effect("a name is one organization's: another sees nothing of it, and cannot drop or hurry it", () =>
    Effect.gen(function* () {
      yield* clean
      const [a, b] = [yield* makeOrganization(), yield* makeOrganization()]
      const certificates = yield* Certificates
      const name = "www.mine.example.com"
      const mine = yield* handleOf(a.id, name)
      const theirs = { orgId: b.id, name }
      yield* mine.want
      yield* (yield* makeProcess({})).round
      const before = yield* mine.find
      assert.isTrue(Option.isNone(yield* certificates.find(theirs)))
      yield* certificates.hurry(theirs)
      yield* certificates.drop(theirs)
      yield* certificates.drop({ orgId: null, name })
      assert.deepStrictEqual(yield* mine.find, before)
      // Once proved by the other, it moves, with what is served.
      yield* certificates.want(theirs)
      const moved = Option.getOrThrow(yield* certificates.find(theirs))
      assert.strictEqual(moved.fingerprint, before.fingerprint)
      yield* mine.drop
      assert.isTrue(Option.isSome(yield* certificates.find(theirs)))
      yield* certificates.drop(theirs)
      assert.strictEqual((yield* certificates.served).size, 0)
    })
  )

  it.effect("nodes hear of a certificate that comes, changes, fails or goes, and of nothing else", () =>
    Effect.gen(function* () {
      yield* clean
      const { notifications } = yield* Db
      const org = yield* makeOrganization()
      const one = yield* handleOf(org.id, "www.heard.example.com")
      const heard: Array<string> = []
      yield* Effect.forkScoped(
        Stream.runForEach(notifications("svc_edge"), (payload) =>
          Effect.sync(() => heard.push(payload ?? "listening"))
        )
      )
      yield* eventually(
        "it listens",
        Effect.sync(() => heard.length > 0)
      )
      const count = (want: number) =>
        eventually(
          "it is heard",
          Effect.sync(() => heard.length),
          (length) => length === want + 1
        )
      const { round } = yield* makeProcess({})
      yield* one.want
      yield* count(1)
      yield* one.want
      yield* round
      yield* count(2)
      yield* one.hurry
      yield* one.due
      yield* round
      yield* one.drop
      yield* count(3)
      assert.deepStrictEqual(new Set(heard.slice(1)), new Set([`certificate ${one.name}`]))
    }).pipe(Effect.scoped)
  )

  it.effect(
    "a certificate of a name that nobody has any more goes, with its order, and nodes hear of it",
    () =>
      Effect.gen(function* () {
        yield* clean
        const { engine: sql, notifications } = yield* Db
        const org = yield* makeOrganization()
        const { production } = yield* makeProject(org.id, "shop")
        const { round } = yield* makeProcess({})
        const at = (name: string) => handleOf(org.id, `${name}.swept.example.com`)
        const [gone, fresh, had, lapsed] = [
          yield* at("gone"),
          yield* at("fresh"),
          yield* at("had"),
          yield* at("lapsed")
        ]
        const platform = yield* handleOf(null, wildcard)
        for (const one of [gone, fresh, had, lapsed, platform]) yield* one.want
        yield* round
        yield* Effect.orDie(sql`
        insert into domain_claim (hostname, org_id, domain_uid, claimed_at) values
          (${had.name}, ${org.id}::uuid, ${production}::uuid, now() - interval '1 year')`)
        // Somebody else's now, who never proved it.
        const other = yield* makeOrganization()
        const { production: another } = yield* makeProject(other.id, "shop")
        yield* Effect.orDie(sql`
        insert into domain_claim (hostname, org_id, domain_uid, claimed_at) values
          (${lapsed.name}, ${other.id}::uuid, ${another}::uuid, now() - interval '8 days')`)
        yield* Effect.orDie(sql`
        insert into edge_certificate_order (name, directory, order_url, key_id, sealed)
        select name, 'https://ca.example/dir', 'https://ca.example/order', key_id, sealed from edge_certificate
        where name = ${gone.name}`)
        yield* Effect.orDie(sql`
        update edge_certificate set created_at = now() - interval '2 hours' where name <> ${fresh.name}`)
        const heard: Array<string> = []
        yield* Effect.forkScoped(
          Stream.runForEach(notifications("svc_edge"), (payload) =>
            Effect.sync(() => heard.push(payload ?? "listening"))
          )
        )
        yield* eventually(
          "it listens",
          Effect.sync(() => heard.length > 0)
        )
        yield* tidy.pipe(Effect.provideService(TableRules, certificateTables))
        const { served } = yield* Certificates
        assert.sameMembers([...(yield* served).keys()], [fresh.name, had.name, wildcard])
        assert.isUndefined(yield* gone.order)
        yield* eventually(
          "nodes hear of it",
          Effect.sync(() => heard.includes(`certificate ${gone.name}`))
        )
      }).pipe(Effect.provide(Resources.layer), Effect.scoped)
  )

  it.effect(
    "an order that authorities have long forgotten goes with its key, and its certificate stays",
    () =>
      Effect.gen(function* () {
        yield* clean
        const { engine: sql } = yield* Db
        const org = yield* makeOrganization()
        const { production } = yield* makeProject(org.id, "shop")
        const { round } = yield* makeProcess({})
        const [old, recent] = [
          yield* handleOf(org.id, "old.ordered.example.com"),
          yield* handleOf(org.id, "recent.ordered.example.com")
        ]
        for (const [one, age] of [
          [old, "193 hours"],
          [recent, "191 hours"]
        ] as const) {
          yield* one.want
          yield* round
          yield* sql`insert into domain_claim (hostname, org_id, domain_uid) values (${one.name}, ${org.id}, ${production})`
          yield* sql`
          insert into edge_certificate_order (name, directory, order_url, key_id, sealed, created_at)
          select name, 'https://ca.example/dir', 'https://ca.example/order', key_id, sealed, now() - ${age}::interval
          from edge_certificate where name = ${one.name}`
        }
        yield* tidy.pipe(Effect.provideService(TableRules, certificateTables))
        assert.isUndefined(yield* old.order)
        assert.isDefined(yield* recent.order)
        const { served } = yield* Certificates
        assert.sameMembers([...(yield* served).keys()], [old.name, recent.name])
      }).pipe(Effect.provide(Resources.layer))
  )

  it.effect("whoever operates the platform sees all of them, and may have one renewed early", () =>
    Effect.gen(function* () {
      yield* clean
      const org = yield* makeOrganization()
      const [one, other] = [
        yield* handleOf(org.id, "a.example.com"),
        yield* handleOf(org.id, "b.example.com")
      ]
      yield* one.want
      const { round, claim } = yield* makeProcess({})
      yield* round
      const before = yield* one.find
      yield* other.want
      assert.deepStrictEqual(
        (yield* listCertificates).map(({ name, state }) => [name, state]),
        [
          ["b.example.com", "pending"],
          ["a.example.com", "issued"]
        ]
      )
      assert.deepStrictEqual(yield* renewCertificates([one.name, "c.example.com"]), [one.name])
      yield* round
      assert.notStrictEqual((yield* one.find).fingerprint, before.fingerprint)
      yield* other.due
      yield* claim
      assert.deepStrictEqual(yield* renewCertificates([other.name]), [], "it is being seen to")
    })
  )

  it.effect("a failing renewal and the first end show in metrics", () =>
    Effect.gen(function* () {
      yield* clean
      const { engine: sql } = yield* Db
      const org = yield* makeOrganization()
      const one = yield* handleOf(org.id, "www.measured.example.com")
      yield* one.want
      yield* (yield* makeProcess({})).round
      yield* Effect.orDie(
        sql`update edge_certificate set error = 'no', error_type = 'dns', not_after = now() + interval '5 days', due_at = null`
      )
      yield* loop.measure
      const values = (yield* Metric.snapshot).flatMap((one) =>
        one.type === "Gauge" && one.id.startsWith("svc_certificate")
          ? [
              [
                `${one.id} ${Object.values(one.attributes ?? {}).join()}`.trim(),
                Number(one.state.value)
              ] as const
            ]
          : []
      )
      const seen = new Map(values)
      assert.strictEqual(seen.get("svc_certificates renewal_failing"), 1)
      assert.strictEqual(seen.get("svc_certificates issued"), 1)
      assert.approximately(seen.get("svc_certificate_expiry_seconds") ?? 0, 5 * 86_400, 60)
    })
  )
})
