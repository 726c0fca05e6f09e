/** From a commit to an app that answers: a real repository, a real build, real containers. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { answerOf, makeShop, over, ready } from "#test/apps/world.ts"
import { buildPlane, logOf, nothingIsLeft } from "#test/builds/world.ts"
import { Containers } from "#test/executions/world.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { gitServer } from "./git-server.ts"
import { trustedAuthority } from "./trusted.ts"

layer(buildPlane({ memoryMb: 512 }), { excludeTestServices: true, timeout: "5 minutes" })(
  "a commit",
  (it) => {
    it.effect(
      "is fetched with its submodule, built, and answers; its credential is nowhere but in the connection",
      () =>
        Effect.gen(function* () {
          const { call, sql } = yield* Plane
          const { podman } = yield* Containers
          const server = yield* gitServer
          const { path, host } = yield* makeShop("source")
          const [repo, library] = [yield* server.create("acme/app"), yield* server.create("acme/lib")]
          const word = yield* library.commit({ "index.js": "module.exports = 'from the submodule'" })
          yield* repo.commit(
            {
              ".gitmodules": '[submodule "lib"]\n\tpath = lib\n\turl = ../lib.git\n',
              "package.json": JSON.stringify({ name: "app", scripts: { start: "node server.js" } }),
              "server.js":
                "require('http').createServer((_, answer) => answer.end(require('./lib/index.js'))).listen(process.env.PORT)"
            },
            { links: { lib: word } }
          )
          for (const name of ["acme/app", "acme/lib"]) server.tokens.set(name, "canary-token")
          const connection = yield* call("POST", "/v1/orgs/main/git-connections", {
            body: {
              name: "acme",
              kind: "forgejo",
              owner: "acme",
              url: `https://127.0.0.1:${server.port}`,
              token: "canary-token"
            }
          })
          assert.strictEqual(connection.status, 201, connection.text)
          const made = yield* call("POST", `${path}/deployments`, {
            body: { git: { repo: "acme/app", ref: "main" } }
          })
          assert.strictEqual(made.status, 202, made.text)
          yield* ready(path, made.body.id)
          assert.strictEqual(yield* answerOf(host), "200 from the submodule")
          const shown = yield* call("GET", `${path}/deployments/${made.body.id}`)
          const log = yield* logOf(path, made.body.id)
          assert.include(log, made.body.source.commit)
          const image = podman("image", "inspect", shown.body.imageDigest.replace("sha256:", ""))
          const rows = yield* sql("select string_agg(r::text, '') as text from resource r")
          for (const text of [shown.text, log, image, String(rows[0]?.["text"])])
            assert.notInclude(text, "canary")
          yield* nothingIsLeft

          // A repository that is gone by the time of the build fails the deployment, and what answers goes on.
          const second = yield* repo.commit({ "package.json": "{}" })
          server.tokens.set("acme/app", "another")
          const refused = yield* call("POST", `${path}/deployments`, {
            body: { git: { repo: "acme/app", ref: second } }
          })
          assert.strictEqual(refused.status, 202, refused.text)
          const failed = yield* over(path, refused.body.id)
          assert.deepStrictEqual([failed.state, failed.errorCode], ["failed", "source_unavailable"])
          assert.strictEqual(yield* answerOf(host), "200 from the submodule")
        }).pipe(Effect.provide(trustedAuthority)),
      300_000
    )
  }
)
