/** A git source of a whole control plane on a real repository, behind `git http-backend`. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { gitServer } from "#test/git/git-server.ts"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { trust } from "#test/setup/s3.ts"
import { eventually } from "#test/setup/wait.ts"

const world = Layer.mergeAll(
  testPlane({ containerSocket: "none" }),
  CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))
)
const base = "/v1/orgs/main/git-sources"
const manifest = (...slugs: ReadonlyArray<string>) => `version: 1
organization: main
projects:
${slugs.map((slug) => `  - { slug: ${slug}, name: ${slug}, runtimeClass: scale-to-zero }`).join("\n")}
`

layer(world, { excludeTestServices: true })("a git source", (it) => {
  it.effect(
    "follows a branch of a repository: applies, tells faults by line, and stops when it is deleted",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        trust((yield* CertificateAuthority).caPem)
        const server = yield* gitServer
        const repo = yield* server.create("acme/platform")
        const first = yield* repo.commit({ "deploy/platform.yaml": manifest("shop") })
        const body = { name: "platform", url: server.url("acme/platform"), path: "deploy/platform.yaml" }
        const made = yield* call("POST", base, { body })
        assert.deepStrictEqual([made.status, made.body.status], [201, "pending"], made.text)
        const one = `${base}/${made.body.id}`
        const until = (what: string, holds: (seen: Answer["body"]) => boolean) =>
          Effect.map(
            eventually(what, call("GET", one), ({ body }) => holds(body)),
            ({ body }) => body
          )
        const synced = yield* until("it is applied", ({ status }) => status === "synced")
        assert.deepStrictEqual([synced.commit, synced.applied.commit, synced.fault], [first, first, null])
        const slugs = Effect.map(call("GET", "/v1/orgs/main/projects"), ({ body }) =>
          body.map(({ slug }: { slug: string }) => slug)
        )
        assert.deepStrictEqual(yield* slugs, ["shop"])

        const second = yield* repo.commit({ "deploy/platform.yaml": manifest("shop", "blog") })
        assert.strictEqual((yield* call("POST", `${one}/sync`)).status, 202)
        const moved = yield* until("it has moved on", ({ applied }) => applied.commit === second)
        assert.strictEqual(moved.applied.planId, moved.planned.planId)
        assert.sameMembers(yield* slugs, ["shop", "blog"])

        yield* repo.commit({ "deploy/platform.yaml": `${manifest("shop")}    region: 5\n` })
        yield* call("POST", `${one}/sync`)
        const faulty = yield* until("it has failed", ({ status }) => status === "failed")
        assert.strictEqual(faulty.fault.code, "manifest_invalid")
        assert.strictEqual(faulty.applied.commit, second)
        yield* repo.commit({ "other.yaml": "" })
        yield* call("POST", `${one}/sync`)
        const missing = yield* until("the file is missed", ({ fault }) => fault?.code === "manifest_missing")
        assert.include(missing.fault.message, "deploy/platform.yaml")
        const nowhere = yield* call("PATCH", one, { body: { ref: "nowhere" } })
        assert.strictEqual(nowhere.status, 200, nowhere.text)
        yield* until("the ref is missed", ({ fault }) => fault?.code === "ref_not_found")

        const suspended = yield* call("PATCH", one, { body: { suspended: true } })
        assert.strictEqual(suspended.body.status, "suspended")
        const refused = yield* call("POST", `${one}/sync`)
        assert.deepStrictEqual([refused.status, refused.body.code], [409, "suspended"])
        assert.strictEqual((yield* call("DELETE", one)).status, 200)
        yield* eventually("it is gone", call("GET", one), ({ status }) => status === 404)
        assert.sameMembers(yield* slugs, ["shop", "blog"])
      })
  )
})
