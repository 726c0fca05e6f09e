/** Who gets a host name: of several that want it, after a deletion, and when nobody proves it. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Claims, challengeOf } from "#src/domains/Claims.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const world = Layer.mergeAll(Resources.layer, Claims.layer).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

const makeTenant = Effect.gen(function* () {
  const { id: orgId } = yield* makeOrganization()
  const { projectId, production } = yield* makeProject(orgId, "shop")
  const resources = yield* Resources
  const claims = yield* Claims
  const add = (name: string) => {
    const uid = uuid()
    return Effect.as(
      resources.write(
        orgId,
        [
          {
            action: "create",
            uid,
            kind: "Domain",
            projectId,
            environment: "production",
            name,
            parentUid: production,
            spec: {},
            managedBy: "api"
          }
        ],
        actor
      ),
      uid
    )
  }
  const remove = (uid: string) => resources.write(orgId, [{ action: "delete", uid }], actor)
  const claim = (uid: string) => Effect.map(claims.find({ orgId, uid }), Option.getOrUndefined)
  const prove = (uid: string) => claims.prove({ orgId, uid })
  return { orgId, projectId, add, remove, claim, prove }
})

/** The domain that has the name. */
const lastOf = (orgId: string, wanted: string) =>
  Effect.flatMap(Db, ({ engine }) =>
    Effect.map(
      Effect.orDie(
        engine<{
          readonly uid: string
        }>`select domain_uid as uid from domain_claim where hostname = ${wanted} and org_id = ${orgId}::uuid`
      ),
      ([row]) => row?.uid
    )
  )
const refusal = <A, E extends { readonly _tag: string }>(self: Effect.Effect<A, E>) =>
  Effect.map(Effect.flip(self), ({ _tag }) => _tag)
const name = () => `n${uuid()}.example.com`

layer(world, { excludeTestServices: true })("a host name", (it) => {
  it.effect("has one owner, however many want it at once", () =>
    Effect.gen(function* () {
      const tenants = yield* Effect.all(Array.from({ length: 6 }, () => makeTenant))
      for (let round = 0; round < 5; round++) {
        const wanted = name()
        const tries = yield* Effect.all(
          tenants.map(({ add }) => Effect.result(add(wanted))),
          { concurrency: "unbounded" }
        )
        const failures = tries.flatMap((one) => (one._tag === "Failure" ? [one.failure._tag] : []))
        assert.deepStrictEqual(
          failures,
          Array.from({ length: 5 }, () => "Refused")
        )
      }
    })
  )

  it.effect("that is free again has one owner as well", () =>
    Effect.gen(function* () {
      const [first, ...others] = yield* Effect.all(Array.from({ length: 5 }, () => makeTenant))
      if (first === undefined) return assert.fail()
      for (let round = 0; round < 5; round++) {
        const wanted = name()
        yield* first.remove(yield* first.add(wanted))
        const tries = yield* Effect.all(
          others.map(({ add }) => Effect.result(add(wanted))),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(tries.filter(({ _tag }) => _tag === "Success").length, 1)
      }
    })
  )

  it.effect("is free as soon as the domain, its project or its organization is asked to go", () =>
    Effect.gen(function* () {
      const [one, two, three] = [yield* makeTenant, yield* makeTenant, yield* makeTenant]
      const [a, b] = [name(), name()]
      const mine = yield* one.add(a)
      yield* one.add(b)
      assert.strictEqual(yield* refusal(two.add(a)), "Refused")
      yield* one.remove(mine)
      yield* two.add(a)
      assert.isUndefined(yield* one.claim(mine))
      yield* one.remove(one.projectId)
      yield* two.add(b)
      assert.strictEqual(yield* refusal(three.add(b)), "Refused")
      const { engine } = yield* Db
      yield* engine`update resource set deletion_requested_at = now() where org_id = ${two.orgId}::uuid`
      yield* three.add(b)
    })
  )

  it.effect("is free after seven days without a proof, and stays with who proved it", () =>
    Effect.gen(function* () {
      const [one, two] = [yield* makeTenant, yield* makeTenant]
      const { engine } = yield* Db
      const [idle, proven] = [name(), name()]
      const [idleUid, provenUid] = [yield* one.add(idle), yield* one.add(proven)]
      const age = (interval: string) =>
        engine.unsafe(
          `update domain_claim set claimed_at = now() - interval '${interval}' where org_id = '${one.orgId}'`
        )
      yield* one.prove(provenUid)
      yield* age("6 days 23 hours")
      assert.strictEqual((yield* one.claim(idleUid))?.lapsed, false)
      assert.strictEqual(yield* refusal(two.add(idle)), "Refused")
      yield* age("7 days 1 minute")
      assert.strictEqual((yield* one.claim(idleUid))?.lapsed, true)
      const theirs = yield* two.add(idle)
      assert.isUndefined(yield* one.claim(idleUid))
      assert.strictEqual((yield* two.claim(theirs))?.lapsed, false)
      assert.strictEqual((yield* one.claim(provenUid))?.lapsed, false)
      assert.strictEqual(yield* refusal(two.add(proven)), "Refused")
    })
  )

  it.effect(
    "is contested as long as another organization was the last to prove it, whoever added it first",
    () =>
      Effect.gen(function* () {
        const [one, two] = [yield* makeTenant, yield* makeTenant]
        const wanted = name()
        const uid = yield* one.add(wanted)
        assert.strictEqual((yield* one.claim(uid))?.contested, false)
        assert.isTrue(yield* one.prove(uid))
        yield* one.remove(uid)
        assert.isFalse((yield* one.claim(yield* one.add(wanted)))?.contested)
        yield* one.remove((yield* lastOf(one.orgId, wanted)) ?? "")
        const theirs = yield* two.add(wanted)
        const claim = yield* two.claim(theirs)
        assert.isTrue(claim?.contested)
        assert.match(claim?.challenge ?? "", /^[0-9a-f]{32}$/)
        assert.notStrictEqual(claim?.challenge, challengeOf(one.orgId, wanted))
        assert.isTrue(yield* two.prove(theirs))
        assert.isFalse((yield* two.claim(theirs))?.contested)
      })
  )

  it.effect("that was claimed and not proved is taken by who shows that it is theirs, and no other", () =>
    Effect.gen(function* () {
      const [squatter, owner] = [yield* makeTenant, yield* makeTenant]
      const claims = yield* Claims
      const wanted = name()
      const contestable = claims.isContestable(owner.orgId, wanted)
      assert.isFalse(yield* contestable)
      const uid = yield* squatter.add(wanted)
      assert.deepStrictEqual(
        [yield* contestable, yield* claims.isContestable(squatter.orgId, wanted)],
        [true, false]
      )
      yield* claims.displace(squatter.orgId, wanted)
      assert.isDefined(yield* squatter.claim(uid))
      yield* claims.displace(owner.orgId, wanted)
      const theirs = yield* owner.add(wanted)
      assert.isFalse(yield* squatter.prove(uid), "the squatter proves nothing any more")
      yield* owner.prove(theirs)
      assert.isFalse(yield* claims.isContestable(squatter.orgId, wanted))
      yield* claims.displace(squatter.orgId, wanted)
      assert.isDefined(yield* owner.claim(theirs))
    })
  )

  it.effect("is given back by its owner alone, and a later reconcile holds it", () =>
    Effect.gen(function* () {
      const [one, two] = [yield* makeTenant, yield* makeTenant]
      const claims = yield* Claims
      const wanted = name()
      const mine = yield* one.add(wanted)
      yield* one.remove(mine)
      const theirs = yield* two.add(wanted)
      yield* claims.release({ orgId: one.orgId, uid: mine })
      assert.isDefined(yield* two.claim(theirs))
      const ref = { orgId: two.orgId, uid: theirs }
      assert.deepStrictEqual(
        [yield* claims.hold(ref, 5n), yield* claims.hold(ref, 5n), yield* claims.hold(ref, 4n)],
        [true, true, false]
      )
      assert.isFalse(yield* claims.hold({ orgId: one.orgId, uid: mine }, 9n))
      yield* claims.release(ref)
      assert.isUndefined(yield* two.claim(theirs))
      assert.isFalse(yield* claims.hold(ref, 9n))
    })
  )

  it.effect("is seen by requests of its own organization alone", () =>
    Effect.gen(function* () {
      const [one, two] = [yield* makeTenant, yield* makeTenant]
      const claims = yield* Claims
      const uid = yield* one.add(name())
      assert.deepStrictEqual([...(yield* claims.ofDomains(one.orgId, [uid])).keys()], [uid])
      assert.strictEqual((yield* claims.ofDomains(two.orgId, [uid])).size, 0)
    })
  )
})
