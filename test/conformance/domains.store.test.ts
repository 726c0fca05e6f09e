/** Custom domains over HTTP, with DNS and an edge that stand in for real ones. */
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { DomainList, DomainView } from "#src/domains/api.ts"
import { fits, untilAnswer } from "#test/setup/answers.ts"
import { Plane, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { type NameServer, nameServer } from "#test/setup/dns.ts"
import { answeringNode } from "#test/setup/edge-node.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

class Dns extends Context.Service<Dns, NameServer>()("test/NameServer") {}
const world = Layer.unwrap(
  Effect.map(nameServer, (server) =>
    Layer.merge(
      testPlane(
        {},
        {
          SVC_DNS_SERVERS: server.address,
          SVC_APPS_DOMAIN: "apps.test",
          SVC_EDGE_ADDRESSES: "192.0.2.1,2001:db8::1"
        }
      ),
      Layer.succeed(Dns, server)
    )
  )
)

const name = () => `n${uuid().slice(-12)}.example.com`

/** A project `shop` of the tenant whose environments have their addresses. */
const shopOf = Effect.fnUntraced(function* ({ slug, owner }: Tenant) {
  const { call, sql } = yield* Plane
  const body = { name: "Shop", slug: "shop" }
  const made = yield* call("POST", `/v1/orgs/${slug}/projects`, { token: owner, body })
  assert.strictEqual(made.status, 201, made.text)
  const environments = (yield* call("GET", `/v1/orgs/${slug}/projects/shop/environments`, { token: owner }))
    .body
  for (const { id, slug: environment } of environments) {
    yield* sql(`insert into edge_site (org_id, environment_uid, label)
      select org_id, uid, '${environment}--shop-${id.slice(-6)}' from resource where uid = '${id}' on conflict do nothing`)
  }
  const base = `/v1/orgs/${slug}/projects/shop/domains`
  return {
    base,
    add: (body: object) => call("POST", base, { token: owner, body }),
    target: (domain: { readonly instructions: string }) =>
      /(?:CNAME|names) ([a-z0-9.-]+\.apps\.test)/.exec(domain.instructions)?.[1] ?? ""
  }
})

layer(world, { excludeTestServices: true })("custom domains", (it) => {
  it.effect("are added with instructions, listed oldest first, followed through DNS, and removed", () =>
    Effect.gen(function* () {
      const { call, tenant, databaseUrl, sql } = yield* Plane
      const { zone } = yield* Dns
      yield* answeringNode(databaseUrl)
      const mine = yield* tenant()
      const { owner, memberKey } = mine
      const { base, add, target } = yield* shopOf(mine)
      const [second, first] = [name(), name()]
      const made = yield* add({ hostname: first })
      assert.strictEqual(made.status, 201, made.text)
      yield* fits(DomainView, made.body)
      assert.deepInclude(made.body, {
        hostname: first,
        environment: "production",
        status: "pending_dns",
        redirectTo: null,
        hstsSeconds: 0
      })
      const managed = target(made.body)
      assert.match(managed, /^production--shop-.*\.apps\.test$/)
      assert.include(made.body.instructions, `${first} CNAME ${managed}`)
      assert.strictEqual((yield* add({ hostname: second, redirectTo: first, hstsSeconds: 60 })).status, 201)
      const listed = yield* call("GET", base, { token: memberKey })
      yield* fits(DomainList, listed.body)
      assert.deepStrictEqual(
        listed.body.map(({ hostname }: { hostname: string }) => hostname),
        [first, second]
      )

      const one = `${base}/${made.body.id}`
      const check = call("POST", `${one}/check`, { token: memberKey })
      const absent = yield* check
      assert.strictEqual(absent.status, 200, absent.text)
      assert.strictEqual(absent.body.status, "pending_dns")
      assert.match(absent.body.verificationErrors, /not in DNS yet/)
      zone.set(first, { rcode: 2 })
      assert.match((yield* check).body.verificationErrors, /SERVFAIL/)
      zone.set(first, { rcode: 5 })
      assert.match((yield* check).body.verificationErrors, /refused/)
      zone.set(first, { cname: "old.example.net" })
      zone.set("old.example.net", { a: ["198.51.100.1"] })
      assert.match((yield* check).body.verificationErrors, /198\.51\.100\.1, which is not/)
      zone.set(first, { cname: managed.toUpperCase() })
      assert.strictEqual((yield* check).body.status, "pending_ssl")
      zone.set(first, { rcode: 2 })
      assert.strictEqual(
        (yield* check).body.status,
        "pending_ssl",
        "what was seen stays where nobody answers"
      )
      const hosts = sql(
        `select hostname, redirect_to, hsts_seconds from edge_host where hostname in ('${first}', '${second}')`
      )
      assert.deepStrictEqual(yield* hosts, [{ hostname: first, redirect_to: null, hsts_seconds: 0 }])

      // Others are sent on to it, so it stays, and in service all the while.
      const inUse = yield* call("DELETE", one, { token: owner })
      assert.deepStrictEqual([inUse.status, inUse.body.code], [409, "in_use"])
      assert.strictEqual((yield* hosts).length, 1)
      const other = `${base}/${listed.body[1].id}`
      const answered = yield* call("PATCH", other, { token: owner, body: { redirectTo: null } })
      assert.deepStrictEqual([answered.body.redirectTo, answered.body.hstsSeconds], [null, 60], answered.text)
      const removed = yield* call("DELETE", one, { token: owner })
      assert.deepStrictEqual([removed.status, removed.body], [200, { ok: true }], removed.text)
      yield* untilAnswer(call("GET", one, { token: owner }), ({ status }) => status === 404)
      assert.deepStrictEqual(yield* hosts, [])
      assert.strictEqual((yield* add({ hostname: first })).status, 201)
    }).pipe(Effect.scoped)
  )

  it.effect("are refused with the reason at their field", () =>
    Effect.gen(function* () {
      const { tenant } = yield* Plane
      const { add } = yield* shopOf(yield* tenant())
      const refused: ReadonlyArray<readonly [body: object, pointer: string, says: RegExp]> = [
        [{ hostname: "www.example.com." }, "/hostname", /dot/],
        [{ hostname: "*.example.com" }, "/hostname", /wildcards/],
        [{ hostname: "192.0.2.1" }, "/hostname", /address/],
        [{ hostname: "localhost" }, "/hostname", /two parts/],
        [{ hostname: "a_b.example.com" }, "/hostname", /underscore/],
        [{ hostname: `${"a".repeat(64)}.example.com` }, "/hostname", /63/],
        [{ hostname: `${"a.".repeat(130)}example.com` }, "/hostname", /253/],
        [{ hostname: "bücher.example" }, "/hostname", /xn--bcher-kva\.example/],
        [{ hostname: "github.io" }, "/hostname", /public suffix/],
        [{ hostname: "x.apps.test" }, "/hostname", /platform's own/],
        [{ hostname: "apps.test" }, "/hostname", /platform's own/],
        [{ hostname: name(), environment: "preview" }, "/environment", /preview/],
        [{ hostname: name(), redirectTo: "elsewhere.example" }, "/redirectTo", /elsewhere\.example/],
        [{ hostname: name(), hstsSeconds: -1 }, "/hstsSeconds", /./]
      ]
      const { databaseUrl } = yield* Plane
      yield* answeringNode(databaseUrl)
      for (const [body, pointer, says] of refused) {
        const answer = yield* add(body)
        assert.strictEqual(answer.status, 422, answer.text)
        assert.strictEqual(answer.body.errors[0].pointer, pointer, answer.text)
        assert.match(answer.body.errors[0].message, says)
      }
      assert.strictEqual((yield* add({ hostname: name(), environment: "nope" })).status, 404)
      const shown = yield* add({ hostname: `xn--bcher-kva.${name()}` })
      assert.match(shown.body.displayName, /^bücher\./)
    }).pipe(Effect.scoped)
  )

  it.effect(
    "of two organizations that add one at once one gets it, and the other after its project is asked to go",
    () =>
      Effect.gen(function* () {
        const { call, tenant, databaseUrl } = yield* Plane
        yield* answeringNode(databaseUrl)
        const tenants = [yield* tenant(), yield* tenant()]
        const shops = yield* Effect.forEach(tenants, shopOf)
        const hostname = name()
        const answers = yield* Effect.all(
          shops.map(({ add }) => add({ hostname })),
          { concurrency: 2 }
        )
        assert.deepStrictEqual(answers.map(({ status }) => status).sort(), [201, 409])
        const lost = answers.findIndex(({ status }) => status === 409)
        const [loser, winner] = [shops[lost], tenants[1 - lost]]
        if (loser === undefined || winner === undefined) return assert.fail()
        assert.strictEqual(answers[lost]?.body.code, "hostname_taken")
        const gone = yield* call("DELETE", `/v1/orgs/${winner.slug}/projects/shop`, { token: winner.owner })
        assert.strictEqual(gone.status, 200, gone.text)
        assert.strictEqual((yield* loser.add({ hostname })).status, 201)
      }).pipe(Effect.scoped)
  )

  it.effect("that somebody else claimed and never proved is taken over with a TXT record", () =>
    Effect.gen(function* () {
      const { tenant, databaseUrl, call } = yield* Plane
      const { zone } = yield* Dns
      yield* answeringNode(databaseUrl)
      const [squatting, owning] = [yield* tenant(), yield* tenant()]
      const [squatter, owner] = [yield* shopOf(squatting), yield* shopOf(owning)]
      const hostname = name()
      const theirs = (yield* squatter.add({ hostname })).body
      const refused = yield* owner.add({ hostname })
      assert.deepStrictEqual([refused.status, refused.body.code], [409, "hostname_taken"], refused.text)
      const [record = "", value = ""] =
        /(_svc-challenge\S+) TXT "(\w+)"/.exec(refused.body.detail)?.slice(1) ?? []
      zone.set(record, { txt: ["something else"] })
      assert.strictEqual((yield* owner.add({ hostname })).status, 409)
      zone.set(record, { txt: [value] })
      assert.strictEqual((yield* owner.add({ hostname })).status, 201)
      const again = yield* squatter.add({ hostname })
      assert.strictEqual(again.status, 409, "the record is not the squatter's")
      const lost = yield* call("POST", `${squatter.base}/${theirs.id}/check`, { token: squatting.owner })
      assert.strictEqual(lost.body.status, "failed", lost.text)
    }).pipe(Effect.scoped)
  )

  it.effect("are neither added, checked nor removed where no edge answers, and nothing of them changes", () =>
    Effect.gen(function* () {
      const { call, tenant, databaseUrl, sql } = yield* Plane
      const { zone } = yield* Dns
      const mine = yield* tenant()
      const { base, add, target } = yield* shopOf(mine)
      const hostname = name()
      const before = yield* add({ hostname })
      assert.deepStrictEqual([before.status, before.body.code], [502, "edge_unreachable"])
      assert.deepStrictEqual((yield* call("GET", base, { token: mine.owner })).body, [])
      assert.deepStrictEqual(yield* sql(`select 1 from domain_claim where hostname = '${hostname}'`), [])
      const { id } = yield* Effect.scoped(
        Effect.gen(function* () {
          yield* answeringNode(databaseUrl)
          const made = (yield* add({ hostname })).body
          zone.set(hostname, { cname: target(made) })
          return (yield* call("POST", `${base}/${made.id}/check`, { token: mine.owner })).body
        })
      )
      const host = sql(
        `select hostname, domain_uid, hsts_seconds from edge_host where hostname = '${hostname}'`
      )
      const served = yield* eventually("it is known to the edge", host, (rows) => rows.length === 1)
      const record = sql(`select spec, generation, deletion_requested_at from resource where uid = '${id}'`)
      const stored = yield* record
      const one = `${base}/${id}`
      for (const [method, path] of [
        ["POST", `${one}/check`],
        ["DELETE", one]
      ] as const) {
        const answer = yield* call(method, path, { token: mine.owner })
        assert.deepStrictEqual([answer.status, answer.body.code], [502, "edge_unreachable"], answer.text)
        assert.deepStrictEqual([yield* host, yield* record], [served, stored])
      }
      // A process that vanished half-way leaves it withdrawn: the next look puts it back.
      yield* sql(`delete from edge_host where hostname = '${hostname}'`)
      yield* answeringNode(databaseUrl)
      yield* call("POST", `${one}/check`, { token: mine.owner })
      assert.deepStrictEqual(yield* host, served)
      assert.strictEqual((yield* call("DELETE", one, { token: mine.owner })).status, 200)
    }).pipe(Effect.scoped)
  )

  it.effect(
    "of production are the manifest's, whose plans keep their options and leave other environments alone",
    () =>
      Effect.gen(function* () {
        const { call, tenant, databaseUrl } = yield* Plane
        yield* answeringNode(databaseUrl)
        const mine = yield* tenant()
        const { base, add } = yield* shopOf(mine)
        const at = `/v1/orgs/${mine.slug}`
        const made = yield* call("POST", `${at}/projects/shop/environments`, {
          token: mine.owner,
          body: { slug: "staging" }
        })
        assert.strictEqual(made.status, 201)
        const [kept, staging, planned] = [name(), name(), name()]
        yield* add({ hostname: kept, hstsSeconds: 60 })
        assert.strictEqual((yield* add({ hostname: staging, environment: "staging" })).status, 201)
        const manifest = (domains: ReadonlyArray<string>) => ({
          version: 1,
          organization: mine.slug,
          projects: [
            {
              name: "Shop",
              slug: "shop",
              runtimeClass: "scale-to-zero",
              environments: { staging: {} },
              domains
            }
          ]
        })
        const apply = (domains: ReadonlyArray<string>, prune = false) =>
          call("POST", `${at}/manifest/apply`, {
            token: mine.owner,
            body: { manifest: manifest(domains), prune }
          })
        const applied = yield* apply([kept, planned])
        assert.strictEqual(applied.status, 202, applied.text)
        const hostnames = Effect.map(call("GET", base, { token: mine.owner }), ({ body }) =>
          body.map(({ hostname, hstsSeconds }: { hostname: string; hstsSeconds: number }) => [
            hostname,
            hstsSeconds
          ])
        )
        assert.sameDeepMembers(yield* hostnames, [
          [kept, 60],
          [staging, 0],
          [planned, 0]
        ])
        const exported = yield* call("GET", `${at}/manifest`, { token: mine.owner })
        assert.sameMembers(exported.body.projects[0].domains, [kept, planned])
        assert.strictEqual((yield* apply([kept], true)).status, 202)
        yield* eventually("it is gone", hostnames, (all) => all.length === 2)
        // A name of somebody else.
        const other = yield* shopOf(yield* tenant())
        const theirs = name()
        yield* other.add({ hostname: theirs })
        const taken = yield* apply([kept, theirs])
        assert.deepStrictEqual([taken.status, taken.body.code], [409, "hostname_taken"], taken.text)
      }).pipe(Effect.scoped)
  )
})
