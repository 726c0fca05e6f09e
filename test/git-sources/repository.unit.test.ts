/** What is fetched for the manifest of a git source. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Forge } from "#src/git/Forge.ts"
import { GitConnections } from "#src/git/GitConnections.ts"
import { GitFetch } from "#src/git/GitFetch.ts"
import { ManifestRepository } from "#src/git-sources/ManifestRepository.ts"
import { uuid } from "#test/setup/fixtures.ts"

it.effect("a commit is fetched once for a file, however often that is read", () =>
  Effect.gen(function* () {
    const fetched: Array<string> = []
    const git = Layer.mock(GitFetch)({
      fetch: ({ commit, orgId }) =>
        Effect.sync(() => {
          fetched.push(commit)
          const file = (name: string) => Effect.succeed(Option.some(Buffer.from(`${orgId} ${name}`)))
          return { commit, archive: "/none", file }
        })
    })
    const world = ManifestRepository.layer.pipe(
      Layer.provide([
        git,
        Layer.mock(GitConnections)({}),
        Layer.mock(Forge)({ client: () => assert.fail("no connection is named") })
      ])
    )
    yield* Effect.gen(function* () {
      const { read } = yield* ManifestRepository
      const [one, other] = [uuid(), uuid()]
      const ask = (orgId: string, commit: string, path = "a.yaml") =>
        read({ orgId, url: "https://git.example.test/a/b", connection: null }, commit, path)
      for (let i = 0; i < 3; i++) assert.strictEqual(yield* ask(one, "1"), `${one} a.yaml`)
      assert.deepStrictEqual(fetched, ["1"])
      assert.strictEqual(yield* ask(one, "1", "b.yaml"), `${one} b.yaml`)
      assert.strictEqual(yield* ask(one, "2"), `${one} a.yaml`)
      assert.strictEqual(yield* ask(other, "1"), `${other} a.yaml`)
      assert.deepStrictEqual(fetched, ["1", "1", "2", "1"])
    }).pipe(Effect.provide(world))
  })
)
