/** What is fetched for the manifest of a git source. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Forge } from "#src/git/Forge.ts"
import { GitConnections } from "#src/git/GitConnections.ts"
import { GitFetch } from "#src/git/GitFetch.ts"
import { ManifestRepository } from "#src/git-sources/ManifestRepository.ts"
import { manifestPathOf } from "#src/git-sources/repository-settings.ts"
import { uuid } from "#test/setup/fixtures.ts"

it.effect("a commit is fetched once for a file, however often that is read", () =>
  Effect.gen(function* () {
    const fetched: Array<string> = []
    const git = Layer.mock(GitFetch)({
      files: ({ commit, orgId }) =>
        Effect.sync(() => {
          fetched.push(commit)
          const file = (name: string) =>
            Effect.succeed(
              name === "none.yaml" ? Option.none() : Option.some(Buffer.from(`${orgId} ${name}`))
            )
          return { file }
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
        Effect.map(
          read({ orgId, url: "https://git.example.test/a/b", connection: null }, commit, path),
          ({ text }) => text
        )
      for (let i = 0; i < 3; i++) assert.strictEqual(yield* ask(one, "1"), `${one} a.yaml`)
      assert.deepStrictEqual(fetched, ["1"])
      assert.strictEqual(yield* ask(one, "1", "b.yaml"), `${one} b.yaml`)
      assert.strictEqual(yield* ask(one, "2"), `${one} a.yaml`)
      assert.strictEqual(yield* ask(other, "1"), `${other} a.yaml`)
      assert.deepStrictEqual(fetched, ["1", "1", "2", "1"])
      // Nor for one that it lacks.
      for (let i = 0; i < 3; i++)
        assert.strictEqual((yield* Effect.flip(ask(one, "2", "none.yaml"))).code, "manifest_missing")
      assert.deepStrictEqual(fetched, ["1", "1", "2", "1", "2"])
    }).pipe(Effect.provide(world))
  })
)

it("the repository names its manifest in svc.yaml, by a path inside of it", () => {
  for (const [text, path] of [
    [undefined, "svc.manifest.yaml"],
    ["", "svc.manifest.yaml"],
    ["organization: acme", "svc.manifest.yaml"],
    ["manifest: ./deploy/platform.yaml", "deploy/platform.yaml"],
    ["manifest: ../elsewhere.yaml", undefined],
    ["manifest: /etc/svc.yaml", undefined],
    ["manifest: 5", undefined],
    ["manifest: [", undefined],
    [`a: &a [${"x,".repeat(9)}x]\nb: &b [${"*a,".repeat(9)}*a]\nc: [${"*b,".repeat(9)}*b]`, undefined]
  ] as const)
    assert.strictEqual(Option.getOrUndefined(manifestPathOf(text)), path, text)
})
