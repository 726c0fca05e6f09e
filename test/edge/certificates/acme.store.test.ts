import { randomBytes, randomUUID, X509Certificate } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { certificateIdOf } from "#src/edge/certificates/acme/x509.ts"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import * as loop from "#src/edge/certificates/loop.ts"
import { ExternalCallHook } from "#src/engine/external-call.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import { makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"
import { type AuthorityOptions, startAuthority } from "./authority.ts"
import { caa, handleOf, makeProcess, store } from "./world.ts"

const dayMs = 86_400_000

layer(store, { excludeTestServices: true })("certificates by ACME", (it) => {
  /** An authority that asks the table of challenges, as an edge would; a process; and a name. */
  const setting = Effect.fnUntraced(function* (
    options: Partial<AuthorityOptions> = {},
    variables: Readonly<Record<string, string>> = {},
    /** What the host says instead. */
    wrong: { readonly answer: string | undefined } = { answer: undefined }
  ) {
    const certificates = yield* Certificates
    const { engine: sql } = yield* Db
    yield* Effect.orDie(sql`delete from edge_certificate`)
    const authority = yield* startAuthority({
      proof: async (host, token) =>
        wrong.answer ??
        Option.getOrUndefined(await Effect.runPromise(certificates.keyAuthorization({ host, token }))),
      ...options
    })
    const settings = { SVC_ACME_DIRECTORY: authority.directoryUrl, ...variables }
    const process = yield* makeProcess(settings)
    const org = yield* makeOrganization()
    const one = yield* handleOf(org.id, `www.${randomUUID()}.example.com`)
    yield* one.want
    const asked = (operation: (typeof authority.asked)[number]) =>
      authority.asked.filter((each) => each === operation).length
    return { authority, process, settings, org, one, asked, certificates, sql, ...process }
  })

  it.effect("a name gets a chain for a key of its own, and the proof is gone afterwards", () =>
    Effect.gen(function* () {
      const { one, round, certificates, sql, authority } = yield* setting(
        {},
        { SVC_ACME_EMAIL: "ann@example.com" }
      )
      yield* round
      const found = yield* one.find
      assert.deepInclude(found, { state: "issued", issuer: "acme", error: undefined })
      const [file] = yield* certificates.files([one.name])
      const pem = Redacted.value(file!.pem)
      assert.notInclude(pem, "\n\n")
      assert.lengthOf(pem.match(/BEGIN CERTIFICATE/g)!, 2)
      assert.lengthOf(pem.match(/BEGIN PRIVATE KEY/g)!, 1)
      const leaf = new X509Certificate(pem)
      assert.strictEqual(leaf.checkHost(one.name), one.name)
      assert.isTrue(leaf.verify(new X509Certificate(authority.rootPem).publicKey))
      assert.strictEqual((yield* certificates.served).get(one.name), found.fingerprint)
      assert.strictEqual(sha256Of(leaf), found.fingerprint)
      const left = found.expiresAt!.getTime() - found.renewAt!.getTime()
      assert.approximately(left, 30 * dayMs, 60_000)
      assert.deepStrictEqual(yield* sql`select * from edge_challenge`, [])
      assert.isUndefined(yield* one.order)
      assert.deepStrictEqual(
        [...authority.accounts.values()].map(({ contact }) => contact),
        [["mailto:ann@example.com"]]
      )
    })
  )

  it.effect("a certificate is renewed when its time comes, with another key", () =>
    Effect.gen(function* () {
      const { one, round, certificates } = yield* setting()
      yield* round
      const [first] = yield* certificates.files([one.name])
      assert.strictEqual((yield* round).size, 0)
      yield* one.renewNow
      yield* round
      const [second] = yield* certificates.files([one.name])
      const keyOf = (pem: Redacted.Redacted) => Redacted.value(pem).split("BEGIN PRIVATE KEY")[1]
      assert.notStrictEqual(keyOf(first!.pem), keyOf(second!.pem))
      assert.strictEqual(second!.fingerprint, (yield* one.find).fingerprint)
    })
  )

  it.effect("a certificate of another directory is replaced by one of the directory that is set", () =>
    Effect.gen(function* () {
      const { one, round, certificates } = yield* setting()
      const production = yield* startAuthority({
        proof: async (host, token) =>
          Option.getOrUndefined(await Effect.runPromise(certificates.keyAuthorization({ host, token })))
      })
      yield* round
      const before = yield* one.find
      const variables = { SVC_ACME_DIRECTORY: production.directoryUrl }
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* Layer.build(
            loop.layer.pipe(
              Layer.fresh,
              Layer.provide(AppConfig.layerWith({}, variables)),
              Layer.provide(Logger.layer([]))
            )
          )
          yield* eventually(
            "it is another",
            one.find,
            ({ fingerprint }) => fingerprint !== before.fingerprint
          )
        })
      )
      const [file] = yield* certificates.files([one.name])
      const leaf = new X509Certificate(Redacted.value(file!.pem))
      assert.isTrue(leaf.verify(new X509Certificate(production.rootPem).publicKey))
      assert.strictEqual((yield* (yield* makeProcess(variables)).round).size, 0, "once")
    })
  )

  it.effect("a renewal that fails leaves what is served, says why, and is tried again", () =>
    Effect.gen(function* () {
      const { one, round, authority, certificates } = yield* setting()
      yield* round
      const [before] = yield* certificates.files([one.name])
      authority.troubles.newOrder = [{ status: 403, type: "unauthorized", detail: "the account is closed" }]
      yield* one.renewNow
      yield* round
      const failing = yield* one.find
      assert.deepInclude(failing, {
        state: "issued",
        fingerprint: before!.fingerprint,
        error: { message: "the account is closed", type: "unauthorized" }
      })
      assert.isAtLeast((yield* one.pause) ?? 0, 90)
      assert.deepStrictEqual(yield* certificates.files([one.name]), [before!])
      yield* one.hurry
      yield* round
      const after = yield* one.find
      assert.isUndefined(after.error)
      assert.notStrictEqual(after.fingerprint, before!.fingerprint)
    })
  )

  it.effect("webhooks are told of the first failure of a renewal, and again once one has gone well", () =>
    Effect.gen(function* () {
      const { one, org, round, authority, sql } = yield* setting()
      const { projectId, production } = yield* makeProject(org.id, "shop")
      yield* sql`insert into domain_claim (hostname, org_id, domain_uid) values (${one.name}, ${org.id}, ${production})`
      yield* sql`insert into webhook (org_id, id, url, events, key_id, sealed)
        values (${org.id}, ${randomUUID()}, 'https://hooks.example.test/', '{certificate.renewal_failed}', 'k', '\\x00')`
      const told = sql<{ readonly projectId: string; readonly data: unknown; readonly deliveries: number }>`
        select project_id as "projectId", data,
          (select count(*)::int from webhook_delivery d where d.event_id = e.id) as deliveries
        from webhook_event e where org_id = ${org.id} and type = 'certificate.renewal_failed' order by created_at`
      const fails = Effect.gen(function* () {
        authority.troubles.newOrder = [{ status: 403, type: "unauthorized", detail: "the account is closed" }]
        yield* one.due
        yield* round
        assert.strictEqual((yield* one.find).error?.type, "unauthorized")
      })
      const goesWell = Effect.gen(function* () {
        yield* one.due
        yield* round
        assert.isUndefined((yield* one.find).error)
      })
      yield* fails
      assert.deepStrictEqual(yield* told, [], "there is nothing to renew")
      yield* goesWell
      const { expiresAt } = yield* one.find

      yield* one.renewNow
      yield* fails
      yield* fails
      const [event, ...others] = yield* told
      assert.deepStrictEqual(others, [])
      assert.deepInclude(event, { projectId, deliveries: 1 })
      const { expiresAt: told1, ...data } = event!.data as { readonly expiresAt: string }
      assert.deepStrictEqual(new Date(told1), expiresAt)
      assert.deepStrictEqual(data, {
        domainId: production,
        hostname: one.name,
        environment: null,
        error: { type: "unauthorized", message: "the account is closed" }
      })

      yield* goesWell
      yield* one.renewNow
      yield* fails
      assert.lengthOf(yield* told, 2)
    }).pipe(Effect.provide(Resources.layer))
  )

  it.effect("a refused nonce is replaced by the one that came with the refusal", () =>
    Effect.gen(function* () {
      const { one, round, authority } = yield* setting()
      for (const operation of ["newAccount", "newOrder", "order", "finalize"] as const) {
        authority.troubles[operation] = [1, 2, 3].map(() => ({
          status: 400,
          type: "badNonce",
          detail: "old"
        }))
      }
      yield* round
      assert.strictEqual((yield* one.find).state, "issued")
    })
  )

  it.effect("an authority that is down is tried again soon, and nothing is given up", () =>
    Effect.gen(function* () {
      const { one, authority, round } = yield* setting()
      const port = yield* Effect.promise(() => freePort())
      const elsewhere = yield* makeProcess({ SVC_ACME_DIRECTORY: `http://127.0.0.1:${port}/directory` })
      yield* elsewhere.round
      const down = yield* one.find
      assert.deepInclude(down, { state: "pending" })
      assert.strictEqual(down.error?.type, "unreachable")
      assert.isBelow(down.nextLookAt!.getTime(), Date.now() + 60_000)
      authority.troubles.directory = [{ status: 503, headers: { "retry-after": "600" } }]
      yield* one.due
      yield* round
      const busy = yield* one.find
      assert.strictEqual(busy.error?.type, "serverInternal")
      assert.strictEqual(yield* one.pause, 600)
    })
  )

  it.effect("after a rate limit nobody asks before the authority allows it, however they hurry", () =>
    Effect.gen(function* () {
      const { one, round, authority, asked } = yield* setting()
      const until = new Date(Date.now() + 3 * 3_600_000)
      authority.troubles.newOrder = [
        {
          status: 429,
          type: "rateLimited",
          detail: "too many certificates already issued",
          headers: { "retry-after": until.toUTCString() }
        }
      ]
      yield* round
      yield* one.hurry
      assert.strictEqual((yield* round).size, 0)
      const limited = yield* one.find
      assert.deepInclude(limited, {
        state: "pending",
        error: { message: "too many certificates already issued", type: "rateLimited" }
      })
      assert.isAtLeast(limited.nextLookAt!.getTime(), until.getTime() - 5_000)
      assert.strictEqual(asked("newOrder"), 1)
    })
  )

  it.effect("after a rate limit an organization's other names wait, and everybody's after two of them", () =>
    Effect.gen(function* () {
      const { org, round, authority, asked, sql } = yield* setting()
      const limited = {
        status: 429,
        type: "rateLimited",
        detail: "too many orders",
        headers: { "retry-after": "7200" }
      }
      const anotherOf = (orgId: string) =>
        Effect.tap(handleOf(orgId, `www.${randomUUID()}.example.com`), ({ want }) => want)
      authority.troubles.newOrder = [limited]
      yield* round
      assert.strictEqual(asked("newOrder"), 1)
      const same = yield* anotherOf(org.id)
      assert.strictEqual((yield* round).get(same.name)?._tag, "Waiting")
      assert.strictEqual(asked("newOrder"), 1)
      assert.match((yield* same.find).error?.message ?? "", /authority has limited .* waits for its turn/)

      const other = yield* anotherOf((yield* makeOrganization()).id)
      yield* round
      assert.strictEqual((yield* other.find).state, "issued")
      authority.troubles.newOrder = [limited]
      yield* anotherOf((yield* makeOrganization()).id)
      yield* round
      assert.strictEqual(asked("newOrder"), 3)
      const third = yield* anotherOf((yield* makeOrganization()).id)
      assert.strictEqual((yield* round).get(third.name)?._tag, "Waiting")
      assert.strictEqual(asked("newOrder"), 3)
      const wait = (yield* third.find).nextLookAt!.getTime() - Date.now()
      assert.isAbove(wait, 13 * 60_000)
      assert.isBelow(wait, 16 * 60_000)

      yield* Effect.orDie(
        sql`update edge_certificate set tried_at = now() - interval '16 minutes' where error_type = 'rateLimited'`
      )
      yield* third.due
      yield* round
      assert.strictEqual((yield* third.find).state, "issued")
    })
  )

  it.effect(
    "an organization orders so many in a while: its other names wait and say so, renewals and others do not",
    () =>
      Effect.gen(function* () {
        const { org, one, round, asked, sql } = yield* setting({}, { SVC_ORG_CERTIFICATE_ORDERS: "2" })
        const anotherOf = (orgId: string) =>
          Effect.tap(handleOf(orgId, `www.${randomUUID()}.example.com`), ({ want }) => want)
        yield* round
        yield* anotherOf(org.id)
        yield* round
        const third = yield* anotherOf(org.id)
        assert.strictEqual((yield* round).get(third.name)?._tag, "Waiting")
        assert.strictEqual(asked("newOrder"), 2)
        const waits = yield* third.find
        assert.strictEqual(waits.state, "pending")
        assert.strictEqual(waits.error?.type, "orderLimit")
        assert.match(waits.error?.message ?? "", /order 2 certificates within 3 hours/)
        // One of two comes back after half of the time.
        assert.isAbove(waits.nextLookAt!.getTime(), Date.now() + 85 * 60_000)
        yield* third.hurry
        yield* round
        assert.strictEqual(asked("newOrder"), 2)

        const other = yield* anotherOf((yield* makeOrganization()).id)
        yield* round
        assert.strictEqual((yield* other.find).state, "issued")
        const { fingerprint } = yield* one.find
        yield* one.renewNow
        yield* round
        assert.notStrictEqual((yield* one.find).fingerprint, fingerprint)
        assert.strictEqual(asked("newOrder"), 4)

        yield* Effect.orDie(
          sql`update edge_order_limit set ordered_until = ordered_until - interval '91 minutes'`
        )
        yield* third.due
        yield* round
        assert.deepInclude(yield* third.find, { state: "issued", error: undefined })
      })
  )

  it.effect("many names that fail use up an organization's share and no more of the authority", () =>
    Effect.gen(function* () {
      const { org, process, asked, sql } = yield* setting(
        {},
        { SVC_ORG_CERTIFICATE_ORDERS: "5" },
        { answer: "something else" }
      )
      yield* Effect.orDie(sql`
        insert into edge_certificate (name, org_id)
        select 'bad-' || n || '.example.com', ${org.id}::uuid from generate_series(1, 200) n`)
      for (let rounds = 0; rounds < 2; rounds++) {
        yield* process.round
        yield* Effect.orDie(
          sql`update edge_certificate set due_at = now(), tried_at = now() - interval '1 day'`
        )
      }
      assert.strictEqual(asked("newOrder"), 5)
    })
  )

  it.effect(
    "an order that its authority works on is looked at more and more rarely, and given up after a day",
    () =>
      Effect.gen(function* () {
        const { one, round, asked, sql } = yield* setting({ neverEnds: { retryAfter: "60" } })
        assert.deepInclude((yield* round).get(one.name), { _tag: "Waiting", again: 60 })
        for (const [age, pause] of [
          [600, 60],
          [3_600, 360],
          [36_000, 900]
        ] as const) {
          yield* Effect.orDie(
            sql`update edge_certificate_order set created_at = now() - make_interval(secs => ${age})`
          )
          yield* one.due
          const outcome = (yield* round).get(one.name)
          assert(outcome?._tag === "Waiting")
          assert.isAtLeast(outcome.again, pause)
          assert.isBelow(outcome.again, pause + 30)
        }
        assert.strictEqual(asked("newOrder"), 1)
        yield* Effect.orDie(sql`update edge_certificate_order set created_at = now() - interval '25 hours'`)
        yield* one.due
        yield* round
        assert.include((yield* one.find).error?.message, "not ended the order within a day")
        assert.isUndefined(yield* one.order)
      })
  )

  it.effect("whoever hurries again and again waits longer each time, and spends no orders meanwhile", () =>
    Effect.gen(function* () {
      const wrong = { answer: "something else" }
      const { one, round, asked, sql } = yield* setting({}, {}, wrong)
      yield* round
      yield* one.hurry
      yield* round
      assert.strictEqual(asked("newOrder"), 2)
      for (const minutes of [1, 2]) {
        yield* one.hurry
        assert.strictEqual((yield* round).size, 0)
        assert.strictEqual(yield* one.pause, minutes * 60)
        yield* Effect.orDie(sql`update edge_certificate set tried_at = now() - interval '3 minutes'`)
        yield* one.hurry
        yield* round
      }
      assert.strictEqual(asked("newOrder"), 4)
    })
  )

  it.effect("a name that the authority refuses is final until somebody hurries it", () =>
    Effect.gen(function* () {
      const { one, round, authority } = yield* setting()
      authority.troubles.newOrder = [
        { status: 400, type: "rejectedIdentifier", detail: "policy forbids issuing for this name" }
      ]
      yield* round
      assert.deepInclude(yield* one.find, {
        state: "failed",
        nextLookAt: undefined,
        error: { message: "policy forbids issuing for this name", type: "rejectedIdentifier" }
      })
      assert.strictEqual((yield* round).size, 0)
      yield* one.hurry
      assert.strictEqual((yield* one.find).state, "pending")
      yield* round
      assert.strictEqual((yield* one.find).state, "issued")
    })
  )

  it.effect("CAA records that name others are explained, and nothing is ordered", () =>
    Effect.gen(function* () {
      const { one, round, asked } = yield* setting({ caaIdentities: ["ca.example.net"] })
      const parent = one.name.slice("www.".length)
      caa.set(parent, [{ critical: false, tag: "issue", value: "letsencrypt.org" }])
      yield* round
      const refused = yield* one.find
      assert.strictEqual(refused.state, "failed")
      assert.deepStrictEqual(refused.error, {
        type: "caa",
        message: `The CAA records of ${parent} let only letsencrypt.org issue certificates; add this one: ${parent}. CAA 0 issue "ca.example.net"`
      })
      assert.strictEqual(asked("newOrder"), 0)
      caa.set(parent, [{ critical: false, tag: "issue", value: "ca.example.net; policy=ev" }])
      yield* one.hurry
      yield* round
      assert.strictEqual((yield* one.find).state, "issued")
    })
  )

  it.effect("a proof that fails is told in the authority's words, and the next try is another order", () =>
    Effect.gen(function* () {
      const wrong = { answer: "something else" as string | undefined }
      const { one, round, authority } = yield* setting({}, {}, wrong)
      yield* round
      const refused = yield* one.find
      assert.deepInclude(refused, {
        state: "pending",
        error: { message: `${one.name} said something else`, type: "unauthorized" }
      })
      assert.isUndefined(yield* one.order)
      wrong.answer = undefined
      yield* one.due
      yield* round
      assert.strictEqual((yield* one.find).state, "issued")
      assert.strictEqual(authority.orders.size, 2)
    })
  )

  it.effect(
    "a process that is killed before or after any request leaves an order that the next one finishes",
    () =>
      Effect.gen(function* () {
        const { authority, settings, certificates, org, one } = yield* setting()
        yield* one.drop
        /** More than the requests of one certificate: the last one is not killed. */
        const most = 16
        const cases = (["before", "after"] as const).flatMap((when) =>
          Array.from({ length: most }, (_, index) => ({
            when,
            at: index + 1,
            name: `${when}-${index + 1}.${one.name}`
          }))
        )
        yield* Effect.forEach(cases, ({ name }) => certificates.want({ orgId: org.id, name }))
        const claiming = yield* makeProcess(settings)
        const claimed = new Map((yield* claiming.claim).map((job) => [job.name, job]))
        const killed = yield* Effect.forEach(
          cases,
          Effect.fnUntraced(function* ({ when, at, name }) {
            const process = yield* makeProcess(settings)
            let calls = 0
            let last = "nothing"
            const kill = (call: string) =>
              Effect.suspend(() => {
                if (++calls !== at) return Effect.void
                last = call
                return Effect.die("killed")
              })
            const exit = yield* process.issue(claimed.get(name)!).pipe(
              Effect.provideService(ExternalCallHook, {
                before: when === "before" ? kill : () => Effect.void,
                after: when === "after" ? kill : () => Effect.void
              }),
              Effect.exit
            )
            assert.strictEqual(Exit.isFailure(exit), last !== "nothing")
            return { name, when, last }
          }),
          { concurrency: 8 }
        )
        assert.deepStrictEqual(
          killed.flatMap(({ last, name }) => (last === "nothing" ? [name] : [])).length > 0,
          true,
          "every request was one after which it was killed"
        )
        // The leases end; another process, which remembers nothing, takes over.
        yield* Effect.forEach(cases, ({ name }) => Effect.flatMap(handleOf(org.id, name), ({ due }) => due))
        const { claim, issue, jobs } = yield* makeProcess(settings)
        yield* Effect.forEach(
          yield* claim,
          (job) => Effect.flatMap(issue(job), (outcome) => jobs.settle(job, outcome)),
          { concurrency: 8 }
        )
        const served = yield* certificates.served
        const wrong = killed.flatMap(({ name, when, last }) => {
          const orders = [...authority.orders.values()].filter((order) => order.name === name).length
          // What the authority made and we never heard of is the only thing that is made twice.
          const expected = when === "after" && last === "acme.newOrder" ? 2 : 1
          return served.has(name) && orders === expected ? [] : [`${when} ${last}: ${orders} orders`]
        })
        assert.deepStrictEqual(wrong, [])
        assert.strictEqual(authority.accounts.size, 1)
      })
  )

  it.effect("an answer that is lost on its way is asked for again, without another order", () =>
    Effect.gen(function* () {
      const { one, round, authority } = yield* setting()
      for (const operation of ["challenge", "finalize", "certificate"] as const) {
        authority.troubles[operation] = [{ status: 502, afterwards: true }]
      }
      for (let tries = 0; tries < 3; tries++) {
        yield* round
        assert.strictEqual((yield* one.find).error?.type, "serverInternal")
        yield* one.due
      }
      yield* round
      assert.strictEqual((yield* one.find).state, "issued")
      assert.strictEqual(authority.orders.size, 1)
    })
  )

  it.effect("an order that the authority has forgotten is replaced, and so is an account", () =>
    Effect.gen(function* () {
      const { one, round, authority, asked } = yield* setting()
      authority.troubles.finalize = [{ status: 500 }]
      yield* round
      assert.isDefined(yield* one.order)
      authority.orders.clear()
      authority.accounts.clear()
      yield* one.due
      yield* round
      assert.isUndefined(yield* one.order)
      yield* one.due
      yield* round
      assert.strictEqual((yield* one.find).state, "issued")
      assert.strictEqual(asked("newOrder"), 2)
    })
  )

  it.effect("two processes at once make one account, and each name is one's", () =>
    Effect.gen(function* () {
      const { settings, org, authority, certificates } = yield* setting()
      const names = Array.from({ length: 6 }, (_, index) => `two-${index}.${randomUUID()}.example.com`)
      yield* Effect.forEach(names, (name) => certificates.want({ orgId: org.id, name }))
      const [a, b] = yield* Effect.all([makeProcess(settings), makeProcess(settings)], { concurrency: 2 })
      yield* Effect.all([a.round, b.round], { concurrency: 2 })
      const served = yield* certificates.served
      assert.isTrue(names.every((name) => served.has(name)))
      assert.strictEqual(authority.accounts.size, 1)
      assert.strictEqual(authority.orders.size, names.length + 1)
    })
  )

  it.effect("a process whose lease was taken stores neither an order nor a certificate", () =>
    Effect.gen(function* () {
      const { one, claim, jobs, issue, round } = yield* setting()
      const [stale] = yield* claim
      yield* one.due
      yield* round
      const current = yield* one.find
      assert.deepStrictEqual(yield* issue(stale!), { _tag: "Waiting", again: 0 })
      assert.isUndefined(yield* one.order)
      yield* jobs.settle(stale!, {
        _tag: "Failed",
        error: { message: "too late", type: "internal" },
        again: 1,
        retryAfter: undefined,
        orderIsOver: true
      })
      assert.deepStrictEqual(yield* one.find, current)
    })
  )

  it.effect("an account is bound to the one that the operator has at the authority", () =>
    Effect.gen(function* () {
      const hmacKey = randomBytes(32).toString("base64url")
      const { one, round, settings } = yield* setting({ binding: { kid: "kid-1", hmacKey } })
      yield* round
      assert.strictEqual((yield* one.find).error?.type, "externalAccountRequired")
      const bound = yield* makeProcess({ ...settings, SVC_ACME_EAB: `kid-1:${hmacKey}` })
      yield* one.due
      yield* bound.round
      assert.strictEqual((yield* one.find).state, "issued")
    })
  )

  it.effect(
    "advice of the authority hastens a renewal and never puts it off; the order says what it replaces",
    () =>
      Effect.gen(function* () {
        const { one, round, authority, certificates } = yield* setting({ advises: true })
        authority.window.start = new Date(Date.now() + 80 * dayMs)
        authority.window.end = new Date(Date.now() + 81 * dayMs)
        yield* round
        const issued = yield* one.find
        // A look at the advice comes before the renewal.
        assert.isBelow(issued.nextLookAt!.getTime(), Date.now() + dayMs)
        yield* one.due
        yield* round
        assert.deepStrictEqual((yield* one.find).renewAt, issued.renewAt)
        authority.window.start = new Date(Date.now() - 2 * dayMs)
        authority.window.end = new Date(Date.now() - dayMs)
        yield* one.due
        yield* round
        const hastened = yield* one.find
        assert.isBelow(hastened.renewAt!.getTime(), Date.now())
        assert.strictEqual(hastened.fingerprint, issued.fingerprint)
        const [file] = yield* certificates.files([one.name])
        const id = yield* certificateIdOf(Redacted.value(file!.pem))
        authority.troubles.newOrder = [{ status: 409, type: "alreadyReplaced", detail: "there is one" }]
        yield* one.due
        yield* round
        assert.notStrictEqual((yield* one.find).fingerprint, issued.fingerprint)
        yield* one.renewNow
        const second = yield* certificateIdOf(Redacted.value((yield* certificates.files([one.name]))[0]!.pem))
        yield* round
        assert.deepStrictEqual(
          [...authority.orders.values()].map(({ replaces }) => replaces),
          [undefined, undefined, second]
        )
        assert.notStrictEqual(second, id)
      })
  )

  it.effect(
    "an authority that asks for patience is asked again at its time, with the same order and proof",
    () =>
      Effect.gen(function* () {
        const { one, round, authority, asked, sql } = yield* setting()
        authority.patience.looks = 1
        assert.deepInclude((yield* round).get(one.name), { _tag: "Waiting", again: 60 })
        assert.deepInclude(yield* one.find, { state: "pending", error: undefined })
        assert.lengthOf(yield* sql`select from edge_challenge where host = ${one.name}`, 1)
        yield* one.due
        yield* round
        assert.strictEqual((yield* one.find).state, "issued")
        assert.strictEqual(asked("newOrder"), 1)
      })
  )
})

const sha256Of = (leaf: X509Certificate) => leaf.fingerprint256.replaceAll(":", "").toLowerCase()
