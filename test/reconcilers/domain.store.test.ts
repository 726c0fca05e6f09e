/** The shared suite on the store: what is outside of a domain are rows of the edge; DNS and the edge itself are stand-ins. */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as domain from "#reconcilers/domain.ts"
import type { DomainSpec } from "#schemas/domain.ts"
import { AppConfig } from "#src/config.ts"
import { Claims, challengeOf } from "#src/domains/Claims.ts"
import { DnsUnknown, Resolver } from "#src/domains/dns/Resolver.ts"
import { Probe, type Served } from "#src/domains/Probe.ts"
import { type Certificate, Certificates } from "#src/edge/certificates/Certificates.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { type Observation, Registry, type Resource } from "#src/engine/Reconciler.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { reconcilerSuite } from "./suite.ts"

type Dns = { readonly cname: string } | { readonly addresses: ReadonlyArray<string> } | "fails" | "nothing"

const config = AppConfig.layerFrom({ SVC_APPS_DOMAIN: "apps.test", SVC_EDGE_ADDRESSES: "192.0.2.1" })

const world = Effect.gen(function* () {
  const context = yield* Layer.build(
    Layer.mergeAll(Resources.layer, Claims.layer, EdgeSites.layer).pipe(
      Layer.provideMerge(KeyRing.layerEphemeral),
      Layer.provideMerge(testDb()),
      Layer.provideMerge(config)
    )
  )
  return yield* Effect.gen(function* () {
    const resources = yield* Resources
    const sites = yield* EdgeSites
    const tenant = Effect.gen(function* () {
      const { id: orgId } = yield* makeOrganization()
      const { projectId, production } = yield* makeProject(orgId, "shop")
      const label = yield* sites.ensure({ orgId, environmentUid: production }, { target: undefined })
      return { orgId, projectId, production, target: sites.hostnameOf(label ?? "") }
    })
    const mine = yield* tenant
    const add = Effect.fnUntraced(function* (
      { orgId, projectId, production }: Effect.Success<typeof tenant>,
      name: string
    ) {
      const uid = uuid()
      const place = { projectId, environment: "production", parentUid: production }
      yield* Effect.orDie(
        resources.write(
          orgId,
          [{ action: "create", uid, kind: "Domain", name, ...place, spec: {}, managedBy: "api" }],
          actor
        )
      )
      const resource: Resource<DomainSpec> = {
        orgId,
        uid,
        kind: "Domain",
        name,
        ...place,
        spec: {},
        generation: 1,
        status: null,
        facts: {},
        deleting: false,
        fence: 1n
      }
      return resource
    })
    return {
      db: Context.get(context, Db),
      mine,
      tenant: Effect.provide(tenant, context),
      add,
      target: mine.target,
      certificates: new Map<string, Certificate>(),
      /** What is not told leads to the environment's own address. */
      dns: new Map<string, Dns>(),
      texts: new Map<string, ReadonlyArray<string>>(),
      edge: { served: { _tag: "Everywhere" } as Served },
      /** Wanted certificates are there at once. */
      issues: { now: true }
    }
  }).pipe(Effect.provide(context))
})
type World = Effect.Success<typeof world>

const issued = (orgId: string, name: string): Certificate => ({
  orgId,
  name,
  state: "issued",
  issuer: "internal",
  fingerprint: "ab",
  expiresAt: new Date("2030-01-01T00:00:00.000Z"),
  renewAt: undefined,
  error: undefined,
  nextLookAt: undefined
})
const unused = Effect.die(new Error("not used here"))

const layer = ({ db, dns, texts, target, certificates, edge, issues }: World) => {
  const at = (name: string) => dns.get(name) ?? { cname: target }
  const told = <A>(name: string, records: (entry: Exclude<Dns, string>) => ReadonlyArray<A>) =>
    Effect.suspend(() => {
      const entry = at(name)
      if (entry === "fails")
        return Effect.fail(new DnsUnknown({ message: `No answer for ${name} (SERVFAIL)` }))
      return Effect.succeed(
        entry === "nothing" ? { records: [], exists: false } : { records: records(entry), exists: true }
      )
    })
  return domain.layer.pipe(
    Layer.provide([
      Claims.layer,
      EdgeSites.layer,
      Layer.succeed(Resolver, {
        of: () => ({
          cname: (name) => told(name, (entry) => ("cname" in entry ? [entry.cname] : [])),
          addresses: (name) => told(name, (entry) => ("addresses" in entry ? entry.addresses : [])),
          txt: (name) => Effect.sync(() => ({ records: texts.get(name) ?? [], exists: true })),
          caa: () => unused
        })
      }),
      Layer.succeed(Probe, { served: () => Effect.sync(() => edge.served) }),
      Layer.succeed(Certificates, {
        want: ({ orgId, name }) =>
          Effect.sync(() => {
            if (certificates.get(name)?.orgId === orgId) return
            const made = issued(orgId ?? "", name)
            certificates.set(name, issues.now ? made : { ...made, state: "pending", expiresAt: undefined })
          }),
        find: ({ name }) => Effect.sync(() => Option.fromUndefinedOr(certificates.get(name))),
        drop: ({ orgId, name }) =>
          Effect.sync(() => {
            if (certificates.get(name)?.orgId === orgId) certificates.delete(name)
          }),
        hurry: () => unused,
        served: unused,
        files: () => unused,
        keyAuthorization: () => unused
      })
    ]),
    Layer.provide([Layer.succeed(Db, db), config]),
    Layer.provideMerge(Registry.layer)
  )
}

const run =
  (statement: string) =>
  (world: World, { uid }: Resource<DomainSpec>) =>
    Effect.asVoid(world.db.engine.unsafe(statement.replace("$uid", `'${uid}'`)))
const changed = (spec: DomainSpec) => (_: World, resource: Resource<DomainSpec>) =>
  Effect.succeed({ ...resource, generation: resource.generation + 1, spec })

reconcilerSuite<World, DomainSpec, unknown>({
  name: "a domain",
  kind: "Domain",
  world,
  layer,
  makeResource: ({ add, mine }) => add(mine, `n${uuid()}.example.com`),
  snapshot: ({ db, certificates }, { uid, name }) =>
    Effect.map(
      db.engine`
        select redirect_to, hsts_seconds, (select proved_at is not null from domain_claim where domain_uid = ${uid}::uuid) as proved
        from edge_host where domain_uid = ${uid}::uuid`,
      (rows) => [rows, certificates.get(name)?.state]
    ),
  remains: ({ db, certificates }, { uid, name }) =>
    Effect.map(
      db.engine<{ readonly what: string }>`
        select 'host' as what from edge_host where domain_uid = ${uid}::uuid
        union all select 'claim' from domain_claim where domain_uid = ${uid}::uuid`,
      (rows) => [...rows.map(({ what }) => what), ...(certificates.has(name) ? ["certificate"] : [])]
    ),
  changes: [
    { name: "a redirect", apply: changed({ redirectTo: "www.example.com" }) },
    { name: "HSTS", apply: changed({ hstsSeconds: 3600 }) }
  ],
  drifts: [
    {
      name: "the edge forgot its name",
      field: "/host",
      disturb: run("delete from edge_host where domain_uid = $uid")
    },
    {
      name: "it redirects",
      field: "/host",
      disturb: run("update edge_host set redirect_to = 'evil.test' where domain_uid = $uid")
    },
    {
      name: "its certificate is gone",
      field: "/certificate",
      disturb: ({ certificates }, { name }) => Effect.sync(() => void certificates.delete(name))
    },
    {
      name: "its proof is forgotten",
      field: "/dns",
      disturb: run("update domain_claim set proved_at = null where domain_uid = $uid")
    }
  ],
  settleMs: 60_000
})

/** One look, and the step that follows from it, as many times as asked. */
const looks = (world: World, resource: Resource<DomainSpec>) =>
  Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("Domain") ?? assert.fail("not registered")
    let seen = yield* reconciler.observe(resource)
    for (let step = 0; step < 3 && seen._tag === "Present" && seen.differences.length > 0; step++) {
      yield* reconciler.converge(resource, seen)
      seen = yield* reconciler.observe({ ...resource, status: seen.status })
    }
    return seen as Observation<{ readonly state: string; readonly verificationErrors: string | null }>
  }).pipe(Effect.provide(layer(world), { local: true }))

const stateOf = (seen: Effect.Success<ReturnType<typeof looks>>) =>
  seen._tag === "Absent" ? seen._tag : [seen.status.state, seen.ready, seen.reason ?? seen.note?.reason]

it.live("a domain goes from DNS to the certificate to being served, and says what it waits for", () =>
  Effect.gen(function* () {
    const made = yield* world
    const name = "www.shop.example"
    const resource = yield* made.add(made.mine, name)
    made.issues.now = false
    made.dns.set(name, "nothing")
    const first = yield* looks(made, resource)
    assert.deepStrictEqual(stateOf(first), ["pending_dns", false, "PendingDns"])
    const [hosts] = yield* made.db
      .engine`select count(*)::int as n from edge_host where domain_uid = ${resource.uid}::uuid`
    assert.deepStrictEqual(hosts, { n: 0 }, "nothing is served for a name that is not proved")
    made.dns.set(name, "fails")
    const failing = yield* looks(made, resource)
    assert.deepStrictEqual(stateOf(failing), ["pending_dns", false, "PendingDns"])
    assert.match(failing._tag === "Present" ? (failing.status.verificationErrors ?? "") : "", /SERVFAIL/)
    made.dns.delete(name)
    assert.deepStrictEqual(stateOf(yield* looks(made, resource)), [
      "pending_ssl",
      false,
      "PendingCertificate"
    ])
    made.dns.set(name, "fails")
    assert.deepStrictEqual(stateOf(yield* looks(made, resource)), [
      "pending_ssl",
      false,
      "PendingCertificate"
    ])
    made.dns.delete(name)
    made.certificates.set(name, issued(resource.orgId, name))
    made.edge.served = { _tag: "Not", message: "An edge has no certificate for it" }
    assert.deepStrictEqual(stateOf(yield* looks(made, resource)), ["pending_ssl", false, "NotServed"])
    made.edge.served = { _tag: "Everywhere" }
    assert.deepStrictEqual(stateOf(yield* looks(made, resource)), ["active", true, undefined])
    made.dns.set(name, { addresses: ["198.51.100.7"] })
    assert.deepStrictEqual(stateOf(yield* looks(made, resource)), ["active", true, "DnsMoved"])
    made.dns.set(name, "fails")
    assert.deepStrictEqual(stateOf(yield* looks(made, resource)), ["active", true, "DnsUnknown"])
  }).pipe(Effect.scoped)
)

it.live(
  "a domain fails for what no waiting helps: a lapsed claim, a lost one, a refusal for good, a name of the platform",
  () =>
    Effect.gen(function* () {
      const made = yield* world
      const other = yield* made.tenant
      const reasonOf = (resource: Resource<DomainSpec>) =>
        Effect.map(Effect.flip(looks(made, resource)), (error) => [
          error._tag,
          "reason" in error ? error.reason : undefined
        ])
      const idle = yield* made.add(made.mine, "idle.example")
      made.dns.set("idle.example", "nothing")
      yield* made.db
        .engine`update domain_claim set claimed_at = now() - interval '8 days' where domain_uid = ${idle.uid}::uuid`
      assert.deepStrictEqual(yield* reasonOf(idle), ["Terminal", "ClaimLapsed"])
      made.dns.delete("idle.example")
      assert.deepStrictEqual(yield* reasonOf(idle), ["Terminal", "ClaimLapsed"], "also when DNS is right now")
      const taken = yield* made.add(other, "idle.example")
      assert.deepStrictEqual(yield* reasonOf(idle), ["Terminal", "ClaimLapsed"])
      const refused = yield* made.add(made.mine, "refused.example")
      made.certificates.set("refused.example", {
        ...issued(refused.orgId, "refused.example"),
        state: "failed",
        error: { message: "the CA does not issue for it", type: "rejectedIdentifier" }
      })
      assert.deepStrictEqual(yield* reasonOf(refused), ["Terminal", "CertificateRefused"])
      const own = yield* made.add(made.mine, "x.apps.test")
      assert.deepStrictEqual(yield* reasonOf(own), ["Terminal", "NameRefused"])
      // Removing what lost its name leaves the name with whoever has it.
      made.dns.set("idle.example", { cname: other.target })
      yield* looks(made, taken)
      const { reconciler } = yield* Effect.provide(
        Effect.map(Registry, ({ registrations }) => registrations.get("Domain") ?? assert.fail()),
        layer(made),
        { local: true }
      )
      const going = { ...idle, deleting: true, fence: 9n }
      yield* reconciler.remove(going, yield* reconciler.observe(going))
      assert.deepStrictEqual(yield* reconciler.observe(going), { _tag: "Absent" })
      assert.deepStrictEqual(stateOf(yield* looks(made, taken)), ["active", true, undefined])
    }).pipe(Effect.scoped)
)

it.live("a host name is not given to a domain that is going, however late somebody tries", () =>
  Effect.gen(function* () {
    const made = yield* world
    const resource = yield* made.add(made.mine, "late.example")
    const { reconciler } = yield* Effect.provide(
      Effect.map(Registry, ({ registrations }) => registrations.get("Domain") ?? assert.fail()),
      layer(made),
      { local: true }
    )
    const seen = yield* reconciler.observe(resource)
    yield* made.db.engine`update resource set deletion_requested_at = now() where uid = ${resource.uid}::uuid`
    assert.match((yield* Effect.flip(reconciler.converge(resource, seen))).message, /is going/)
    assert.deepStrictEqual(
      yield* made.db.engine`select 1 from edge_host where domain_uid = ${resource.uid}::uuid`,
      []
    )
  }).pipe(Effect.scoped)
)

it.live("a name that another organization proved is proved by a TXT record", () =>
  Effect.gen(function* () {
    const made = yield* world
    const other = yield* made.tenant
    const name = "moved.example"
    const before = yield* made.add(made.mine, name)
    assert.deepStrictEqual(stateOf(yield* looks(made, before)), ["active", true, undefined])
    yield* made.db.engine`update resource set deletion_requested_at = now() where uid = ${before.uid}::uuid`
    const after = yield* made.add(other, name)
    made.dns.set(name, { cname: other.target })
    const asked = yield* looks(made, after)
    assert.deepStrictEqual(stateOf(asked), ["pending_dns", false, "PendingDns"])
    const challenge = challengeOf(other.orgId, name)
    assert.include(asked._tag === "Present" ? asked.message : "", challenge)
    made.texts.set(`_svc-challenge.${name}`, ["something else"])
    assert.deepStrictEqual(stateOf(yield* looks(made, after)), ["pending_dns", false, "PendingDns"])
    made.texts.set(`_svc-challenge.${name}`, ["something else", challenge])
    // As long as the domain before is not gone from the edge, its name is not given to another.
    assert.match((yield* Effect.flip(looks(made, after))).message, /in use/)
    yield* made.db.engine`delete from edge_host where domain_uid = ${before.uid}::uuid`
    assert.deepStrictEqual(stateOf(yield* looks(made, after)), ["active", true, undefined])
    made.texts.clear()
    assert.deepStrictEqual(
      stateOf(yield* looks(made, after)),
      ["active", true, undefined],
      "it is proved once"
    )
  }).pipe(Effect.scoped)
)

it.live("addresses prove nothing by themselves, since everybody shares them", () =>
  Effect.gen(function* () {
    const made = yield* world
    const victim = yield* made.tenant
    // Forgotten, or meant for another: all names below it lead to the edge.
    const www = yield* made.add(victim, "www.victim.example")
    made.dns.set("www.victim.example", { cname: victim.target })
    assert.deepStrictEqual(stateOf(yield* looks(made, www)), ["active", true, undefined])
    for (const name of ["login.victim.example", "victim.example"]) {
      made.dns.set(name, { addresses: ["192.0.2.1"] })
      const resource = yield* made.add(made.mine, name)
      const asked = yield* looks(made, resource)
      assert.deepStrictEqual(stateOf(asked), ["pending_dns", false, "PendingDns"])
      const challenge = challengeOf(resource.orgId, name)
      assert.include(asked._tag === "Present" ? asked.message : "", challenge)
      made.texts.set(`_svc-challenge.${name}`, [challengeOf(victim.orgId, name)])
      assert.deepStrictEqual(stateOf(yield* looks(made, resource)), ["pending_dns", false, "PendingDns"])
      made.texts.set(`_svc-challenge.${name}`, [challenge])
      assert.deepStrictEqual(stateOf(yield* looks(made, resource)), ["active", true, undefined])
    }
  }).pipe(Effect.scoped)
)

it.live(
  "what a lost name leaves behind goes with its domain: a certificate that nobody needs, and no host name",
  () =>
    Effect.gen(function* () {
      const made = yield* world
      const other = yield* made.tenant
      const { reconciler } = yield* Effect.provide(
        Effect.map(Registry, ({ registrations }) => registrations.get("Domain") ?? assert.fail()),
        layer(made),
        { local: true }
      )
      for (const heir of ["another", "its own"]) {
        const name = `n${uuid()}.example.com`
        const before = yield* made.add(made.mine, name)
        yield* looks(made, before)
        yield* made.db
          .engine`update resource set deletion_requested_at = now() where uid = ${before.uid}::uuid`
        yield* made.add(heir === "another" ? other : made.mine, name)
        const going = { ...before, deleting: true, fence: 9n }
        yield* reconciler.remove(going, yield* reconciler.observe(going))
        assert.strictEqual(made.certificates.has(name), heir === "its own", heir)
      }
      // A run that began before the name was lost.
      const late = yield* made.add(made.mine, "lost.example")
      yield* looks(made, late)
      yield* made.db.engine`delete from edge_host where domain_uid = ${late.uid}::uuid`
      yield* made.db.engine`delete from domain_claim where domain_uid = ${late.uid}::uuid`
      const sites = Effect.flatMap(EdgeSites, (one) =>
        one.putHost({
          orgId: late.orgId,
          domainUid: late.uid,
          hostname: late.name,
          environmentUid: made.mine.production
        })
      )
      const refused = yield* sites.pipe(
        Effect.provide(EdgeSites.layer.pipe(Layer.provide([Layer.succeed(Db, made.db), config]))),
        Effect.flip
      )
      assert.strictEqual(refused._tag, "SiteMissing")
    }).pipe(Effect.scoped)
)
