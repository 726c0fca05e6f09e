/** What looks of a git source come to: applied, held back for people, or a fault; and when the next one is due. */
import { assert, it } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { GitSourceStatus } from "#schemas/git-source.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { GitSources } from "#src/git-sources/GitSources.ts"
import { RepositoryError } from "#src/git-sources/ManifestRepository.ts"
import { Manifests } from "#src/manifest/Manifests.ts"
import { actor } from "#test/setup/fixtures.ts"
import { project, type Source, type SourceWorld, sourceLayer, sourceServices, sourceWorld } from "./world.ts"

const decode = Schema.decodeUnknownSync(GitSourceStatus)

const repoOf = ({ slug }: Source) => `Acme/${slug}`

let fence = 0n
/** Looks as the engine does until there is nothing to do at the moment, and answers what is to be seen then. */
const settled = (world: SourceWorld, source: Source) =>
  Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("GitSource") ?? assert.fail("no reconciler")
    const resource = { ...source, fence: ++fence }
    for (let steps = 0; steps < 5; steps++) {
      const seen = yield* reconciler.observe(resource)
      if (seen._tag === "Present" && seen.differences.length + (seen.maintenance ?? []).length === 0)
        return {
          ...seen,
          steps,
          status: decode(seen.status),
          pollMs: Duration.toMillis(Duration.fromInputUnsafe(seen.pollAfter ?? 0))
        }
      yield* reconciler.converge(resource, seen)
    }
    return assert.fail("it does not settle")
  }).pipe(Effect.provide(sourceLayer(world)))

/** Of hours, whatever time it is: the store's own clock does not move. */
const today = TestClock.setTime(Date.now())

it.effect("the manifest is applied, and again when the ref moves; a look in between changes nothing", () =>
  Effect.gen(function* () {
    yield* today
    const world = yield* sourceWorld
    const source = yield* world.makeSource()
    const first = yield* settled(world, source)
    assert.isTrue(first.ready)
    assert.deepStrictEqual(yield* world.projects(source), ["shop"])
    const { commit, planned, applied } = first.status
    assert.deepStrictEqual([applied?.commit, applied?.planId], [commit, planned?.planId])
    assert.strictEqual(planned?.changes[0]?.address, "Project/shop")
    assert.isAtLeast(first.pollMs, 300_000)
    assert.isAtMost(first.pollMs, 360_000)

    const next = world.push(source, world.manifestOf(source, project("shop"), project("blog")))
    assert.strictEqual((yield* settled(world, source)).steps, 0)
    yield* TestClock.adjust("5 minutes")
    const second = yield* settled(world, source)
    assert.deepStrictEqual([second.status.commit, second.status.applied?.commit], [next, next])
    assert.sameMembers([...(yield* world.projects(source))], ["shop", "blog"])

    // Nothing new: looked at, and nothing planned.
    yield* TestClock.adjust("5 minutes")
    const third = yield* settled(world, source)
    assert.notStrictEqual(third.status.lookedAt, second.status.lookedAt)
    assert.deepStrictEqual({ ...third.status, lookedAt: "" }, { ...second.status, lookedAt: "" })
    const audited = yield* world.db.engine`
      select principal from audit_log where org_id = ${source.orgId}::uuid and operation = 'gitSources.apply'`
    assert.isNotEmpty(audited)
    assert.strictEqual(audited[0]?.["principal"], source.spec.principal)
  }).pipe(Effect.scoped)
)

it.effect("who asks has it looked at now; being told of a change of the repository does the same", () =>
  Effect.gen(function* () {
    yield* today
    const world = yield* sourceWorld
    const [source, other] = [yield* world.makeSource(), yield* world.makeSource()]
    yield* settled(world, source)
    yield* settled(world, other)
    const sources = <A, E>(body: (service: GitSources["Service"]) => Effect.Effect<A, E>) =>
      Effect.flatMap(GitSources, body).pipe(Effect.provide(sourceServices(world)))
    yield* sources(({ ask }) => ask(source))
    assert.isAbove((yield* settled(world, source)).steps, 0)
    // Told twice, or of a change that was seen already: a look more, and nothing else.
    yield* sources(({ changed }) => changed(source.orgId, repoOf(source)))
    yield* sources(({ changed }) => changed(source.orgId, repoOf(source)))
    assert.strictEqual((yield* settled(world, source)).steps, 1)
    assert.strictEqual((yield* settled(world, source)).steps, 0)
    // Not of another organization, nor of another repository.
    yield* sources(({ changed }) => changed(other.orgId, repoOf(source)))
    yield* sources(({ changed }) => changed(source.orgId, repoOf(other)))
    assert.strictEqual((yield* settled(world, other)).steps, 0)
    assert.strictEqual((yield* settled(world, source)).steps, 0)
  }).pipe(Effect.scoped)
)

it.effect("what others changed is told as drift, and made good", () =>
  Effect.gen(function* () {
    yield* today
    const world = yield* sourceWorld
    const source = yield* world.makeSource()
    yield* settled(world, source)
    const [shop] = yield* world.resources.listKind(source.orgId, "Project", null)
    const spec = { name: "Renamed", runtimeClass: "scale-to-zero" }
    yield* world.resources.write(source.orgId, [{ action: "update", uid: shop?.uid ?? "", spec }], actor)
    yield* TestClock.adjust("5 minutes")
    const seen = yield* settled(world, source)
    assert.deepStrictEqual(seen.status.drift?.addresses, ["Project/shop"])
    assert.deepStrictEqual(seen.status.planned?.changes[0]?.fields, ["/name"])
    const [after] = yield* world.resources.listKind(source.orgId, "Project", null)
    assert.include(after?.spec, { name: "shop" })
  }).pipe(Effect.scoped)
)

it.effect(
  "what the list no longer names stays without prune; with it, an owner has to apply the deletion",
  () =>
    Effect.gen(function* () {
      yield* today
      const world = yield* sourceWorld
      const source = yield* world.makeSource({}, "owner")
      const both = world.manifestOf(source, project("shop"), project("blog"))
      world.push(source, both)
      yield* settled(world, source)
      const one = world.manifestOf(source, project("shop", { name: "Shop" }))
      const commit = world.push(source, one)
      yield* TestClock.adjust("5 minutes")
      const kept = yield* settled(world, source)
      assert.isTrue(kept.ready)
      assert.sameMembers([...(yield* world.projects(source))], ["shop", "blog"])

      const pruning = { ...source, generation: 2, spec: { ...source.spec, prune: true } }
      const held = yield* settled(world, pruning)
      assert.isFalse(held.ready)
      // Deleting a project wants a person's word as well.
      assert.deepStrictEqual([held.reason, held.status.fault?.code], ["PlanBlocked", "plan_blocked"])
      assert.strictEqual(held.status.applied?.commit, commit)
      assert.sameMembers([...(yield* world.projects(source))], ["shop", "blog"])

      const named = world.manifestOf(source, project("shop", { environments: { staging: {} } }))
      yield* settled(world, { ...source, generation: 3, spec: { ...source.spec, ref: "main" } })
      world.push(source, named)
      yield* TestClock.adjust("5 minutes")
      const made = yield* settled(world, { ...source, generation: 3 })
      assert.isTrue(made.ready)
      world.push(source, world.manifestOf(source, project("shop", { environments: {} }), project("blog")))
      const owner = yield* settled(world, { ...pruning, generation: 4 })
      assert.deepStrictEqual([owner.reason, owner.status.fault?.code], ["OwnerNeeded", "owner_needed"])
      const change = owner.status.planned?.changes.find(({ action }) => action === "delete")
      assert.deepStrictEqual([change?.address, change?.role], ["shop/Environment/staging", "owner"])

      // The same plan stays, for an owner to apply it as it was shown.
      yield* TestClock.adjust("6 minutes")
      const again = yield* settled(world, { ...pruning, generation: 4 })
      assert.strictEqual(again.status.planned?.planId, owner.status.planned?.planId)
      const apply = Effect.flatMap(Manifests, ({ applyPlan }) =>
        applyPlan(source.orgId, again.status.planned?.planId ?? "", "owner", actor, false)
      )
      yield* Effect.provide(apply, sourceServices(world))
      yield* TestClock.adjust("6 minutes")
      assert.isTrue((yield* settled(world, { ...pruning, generation: 4 })).ready)
    }).pipe(Effect.scoped)
)

it.effect("it may do what who made it may: after they left or lost the role, nothing is applied", () =>
  Effect.gen(function* () {
    yield* today
    const world = yield* sourceWorld
    const source = yield* world.makeSource()
    const { engine: sql } = world.db
    yield* sql`update member set role = 'member' where org_id = ${source.orgId}::uuid`
    const lost = yield* settled(world, source)
    assert.deepStrictEqual([lost.ready, lost.reason], [false, "RightsLost"])
    assert.deepStrictEqual(yield* world.projects(source), [])
    yield* sql`update member set role = 'admin' where org_id = ${source.orgId}::uuid`
    yield* TestClock.adjust("1 minute")
    assert.isTrue((yield* settled(world, source)).ready)
    yield* sql`delete from member where org_id = ${source.orgId}::uuid`
    yield* TestClock.adjust("6 minutes")
    assert.strictEqual((yield* settled(world, source)).reason, "RightsLost")

    for (const principal of ["system", `key:${source.uid}`, `grant:${source.uid}`, "user:nobody"]) {
      const stranger = yield* world.makeSource({}, "admin")
      const spec = { ...stranger.spec, principal }
      assert.strictEqual((yield* settled(world, { ...stranger, spec })).reason, "RightsLost", principal)
    }
    const unpaid = yield* world.makeSource()
    yield* sql`update organization set billing_status = 'past_due' where id = ${unpaid.orgId}::uuid`
    assert.strictEqual((yield* settled(world, unpaid)).reason, "BillingInactive")
    assert.deepStrictEqual(yield* world.projects(unpaid), [])
  }).pipe(Effect.scoped)
)

it.effect("faults are told by field, change nothing, and are looked at again ever more rarely", () =>
  Effect.gen(function* () {
    yield* today
    const world = yield* sourceWorld
    const source = yield* world.makeSource()
    yield* settled(world, source)
    const faulty = {
      "not yaml: [": [],
      [world.manifestOf(source, { slug: "shop" })]: ["/projects/0/name", "/projects/0/runtimeClass"],
      [world.manifestOf({ slug: "somebody-else" }, project("shop"))]: ["/organization"]
    }
    let generation = 1
    for (const [text, pointers] of Object.entries(faulty)) {
      const commit = world.push(source, text)
      const seen = yield* settled(world, { ...source, generation: ++generation })
      assert.deepStrictEqual([seen.ready, seen.reason], [false, "ManifestInvalid"], text)
      assert.includeMembers(
        (seen.status.fault?.errors ?? []).map(({ pointer }) => pointer),
        pointers
      )
      if (pointers.length > 0) assert.strictEqual(seen.status.commit, commit)
      assert.deepStrictEqual(yield* world.projects(source), ["shop"])
    }
    const gone = new RepositoryError({ code: "unreachable", message: "git.example.test does not answer" })
    world.away.set(source.spec.url, gone)
    const waits: Array<number> = []
    for (let looks = 0; looks < 5; looks++) {
      const away = yield* settled(world, { ...source, generation })
      assert.deepStrictEqual([away.ready, away.reason !== undefined], [false, true])
      waits.push(away.pollMs)
      yield* TestClock.adjust(away.pollMs)
    }
    assert.isTrue(
      waits.every((wait, index) => index === 0 || wait > (waits[index - 1] ?? 0) * 0.8),
      String(waits)
    )
    assert.isAtMost(Math.max(...waits), 360_000)
    assert.strictEqual((yield* settled(world, { ...source, generation })).message, gone.message)
    world.away.delete(source.spec.url)
    world.push(source, world.manifestOf(source, project("shop")))
    yield* TestClock.adjust("6 minutes")
    const back = yield* settled(world, { ...source, generation })
    assert.deepStrictEqual([back.ready, back.status.fault, back.status.failures], [true, null, 0])
  }).pipe(Effect.scoped)
)

it.effect("a suspended source is not looked at, and is when it is resumed", () =>
  Effect.gen(function* () {
    yield* today
    const world = yield* sourceWorld
    const source = yield* world.makeSource()
    const suspended = { ...source, spec: { ...source.spec, suspended: true } }
    const seen = yield* settled(world, suspended)
    assert.deepStrictEqual([seen.ready, seen.note?.reason], [true, "Suspended"])
    assert.strictEqual(seen.status.lookedAt, null)
    assert.deepStrictEqual(yield* world.projects(source), [])
    assert.isTrue((yield* settled(world, { ...source, generation: 2 })).ready)
    assert.deepStrictEqual(yield* world.projects(source), ["shop"])
  }).pipe(Effect.scoped)
)
