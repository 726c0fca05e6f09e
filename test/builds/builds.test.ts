/** From a folder to an app that answers: real builds with real Node and npm, in real containers. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { answerOf, makeShop, over, readDeployment, ready } from "#test/apps/world.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Containers } from "#test/executions/world.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { TestEdge } from "#test/setup/edge.ts"
import { eventually } from "#test/setup/wait.ts"
import { digestOf, type Entry, file, link, tar } from "./archives.ts"
import { exampleApp } from "./example-app.ts"
import { buildOfKilledEngine, buildOfKilledPlane, greedyBuilds, hostileBuild } from "./hostile.ts"
import { deploymentsOnDisk } from "./kept.ts"
import { frameworkBuilds, packageManagers } from "./packages.ts"
import {
  baseImage,
  buildContainers,
  buildPlane,
  deploySource,
  logOf,
  nothingIsLeft,
  send,
  userWith
} from "./world.ts"

const patience = 300_000

const library = {
  "lib/package.json": JSON.stringify({ name: "lib", version: "1.0.0", main: "index.js" }),
  "lib/index.js": "module.exports = 'from the library'"
}
const locked = {
  name: "app",
  lockfileVersion: 3,
  packages: {
    "": { name: "app", dependencies: { lib: "file:./lib" } },
    lib: { version: "1.0.0" },
    "node_modules/lib": { resolved: "lib", link: true }
  }
}
/** It needs a package, and a build writes what it answers. */
const server = (word: string) => ({
  ...library,
  "package.json": JSON.stringify({
    name: "app",
    dependencies: { lib: "file:./lib" },
    scripts: { build: "node build.js", start: "node server.js" }
  }),
  "package-lock.json": JSON.stringify(locked),
  "build.js": `const { TOKEN = "", PLAIN = "none" } = process.env
    require("fs").writeFileSync("built.txt", [${JSON.stringify(word)}, require("lib"), process.getuid(), TOKEN.length, PLAIN].join(" "))`,
  "server.js": `const text = require("fs").readFileSync("built.txt", "utf8") + " " + (process.env.CI ?? "run")
      + " " + require("fs").existsSync("secret.txt")
    require("http").createServer((_, answer) => answer.end(text)).listen(process.env.PORT)`
})
/** The value of variables that only builds, and what runs, may see. */
const canary = "canary-4711-of-builds"
const filesWith = (text: string, folder: string) =>
  fs.readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => {
    const file = path.join(folder, name)
    return fs.lstatSync(file).isFile() && fs.readFileSync(file).includes(text)
  })
/** A program that is started as it is, once this has run: without npm, whose start takes longer than most of it. */
const stepsOf = (build: string) =>
  file("svc.yaml", JSON.stringify({ build: { build, start: "exec node x" } }))

layer(buildPlane(), { excludeTestServices: true, timeout: "5 minutes" })("builds", (it) => {
  it.effect(
    "svc deploy builds a folder, and the app answers; the same source is built once",
    () =>
      Effect.gen(function* () {
        const { podman } = yield* Containers
        const { path, host } = yield* makeShop("folder")
        const user = yield* userWith({
          ...server("one"),
          ".gitignore": "secret.txt\n",
          "svc.yaml": "project: folder\n",
          "secret.txt": "hidden",
          "node_modules/lib/index.js": "module.exports = 'not mine'"
        })
        const plan = yield* user.svc(["deploy", "folder", "app", "--plan"])
        assert.deepStrictEqual(
          [plan.code, plan.stdout],
          [0, "install: npm ci --no-audit --no-fund\nbuild: npm run build\nstart: exec node server.js\n"],
          plan.stderr
        )
        for (const [key, ...flags] of [["PLAIN"], ["TOKEN", "--build"]] as const) {
          const set = yield* user.svc(["env", "set", "folder", key, ...flags], { stdin: canary })
          assert.strictEqual(set.code, 0, set.stderr)
        }
        const done = yield* user.svc(["deploy", "folder", "app"])
        assert.strictEqual(done.code, 0, done.stdout + done.stderr)
        assert.include(done.stdout + done.stderr, host)
        assert.strictEqual(
          yield* answerOf(host),
          `200 one from the library 1000 ${canary.length} none run false`
        )
        // By the folder alone, whose svc.yaml names its project.
        const again = yield* user.svc(["deploy", "./app", "--json"])
        assert.strictEqual(again.code, 0, again.stderr)
        const { id, imageDigest } = JSON.parse(again.stdout)
        const log = yield* logOf(path, id)
        assert.include(log, "was built before")
        assert.notInclude(log, "npm")
        // Nothing of the build is in the image but what it left.
        const image = JSON.parse(podman("image", "inspect", imageDigest.replace("sha256:", "")))[0]
        const names = image.Config.Env.map((pair: string) => pair.split("=")[0])
        // The engine adds two of its own.
        assert.deepStrictEqual(names.sort(), ["NODE_EXTRA_CA_CERTS", "PATH", "TERM", "container"])
        assert.strictEqual(image.Config.User, "1000:1000")
        // Nor is it known to anybody what its variables are.
        const kept = [JSON.stringify(image), podman("history", "--no-trunc", "--format", "json", image.Id)]
        for (const text of [...kept, log, done.stdout, done.stderr, again.stdout])
          assert.notInclude(text, canary)
        assert.include(log, "Variables of the build: TOKEN\n")
        assert.deepStrictEqual(filesWith(canary, image.GraphDriver.Data.UpperDir), [])
        yield* nothingIsLeft
      }),
    patience
  )

  it.effect(
    "serve what a build leaves of a single-page app, with its page for all paths",
    () =>
      Effect.gen(function* () {
        const { request } = yield* TestEdge
        const { path, host } = yield* makeShop("page")
        const id = yield* deploySource(
          path,
          file(
            "svc.yaml",
            "build: { output: dist, fallback: true, build: 'mkdir -p dist/assets && cp page.html dist/index.html && cp a.js dist/assets/app-B4kd91Qz.js' }"
          ),
          file("page.html", "<p>page</p>"),
          file("a.js", "1")
        )
        yield* ready(path, id)
        const [page, deep, script, none] = yield* Effect.forEach(
          ["/", "/deep/link", "/assets/app-B4kd91Qz.js", "/assets/none.js"],
          (target) => request(host, target)
        )
        assert.deepStrictEqual([page?.status, page?.text], [200, "<p>page</p>"])
        assert.deepStrictEqual([deep?.status, deep?.text], [200, "<p>page</p>"])
        assert.match(String(script?.headers["cache-control"]), /immutable/)
        assert.strictEqual(none?.status, 404)
      }),
    patience
  )

  it.effect(
    "by a Dockerfile, step by step as it says, end in what it says",
    () =>
      Effect.gen(function* () {
        const { podman } = yield* Containers
        const { call } = yield* Plane
        const { path, host } = yield* makeShop("dockerfile")
        const vars = [
          { key: "TOKEN", value: canary, build: true },
          { key: "PLAIN", value: canary }
        ]
        const set = yield* call("PUT", `${path}/env`, { body: { vars } })
        assert.strictEqual(set.status, 200, set.text)
        const id = yield* deploySource(
          path,
          file(
            "Dockerfile",
            `ARG BASE=${baseImage}
FROM \${BASE} AS base
WORKDIR /srv/app
FROM base AS build
ARG WORD=argued
ARG TOKEN
COPY package.json ./
RUN echo "$WORD \${NODE_ENV:-none} $(id -u) \${#TOKEN} \${PLAIN:-none}" > built.txt && echo begun
ENV NODE_ENV=production
FROM base
ENV GREETING="hello there"
COPY --from=build /srv/app/built.txt ./
COPY --chown=node:node lib lib
COPY server.js .
RUN echo "$GREETING" > greeting.txt
USER node
EXPOSE 3000
CMD ["node", "server.js"]
`
          ),
          file(".dockerignore", "lib/secret.txt\n"),
          file("package.json", "no JSON"),
          file("svc.yaml", "build: { dockerfile: Dockerfile }"),
          file("lib/a.txt", "a"),
          file("lib/secret.txt", "s"),
          file(
            "server.js",
            `const fs = require("fs"), read = (name) => fs.readFileSync(name, "utf8").trim()
            const text = [read("built.txt"), read("greeting.txt"), process.env.GREETING, process.getuid(), process.cwd(),
              fs.statSync("lib/a.txt").uid, fs.existsSync("lib/secret.txt"), process.env.WORD].join("|")
            require("http").createServer((_, answer) => answer.end(text)).listen(process.env.PORT)`
          )
        )
        const done = yield* over(path, id)
        assert.strictEqual(done.state, "ready", `${done.error}\n${yield* logOf(path, id)}`)
        assert.strictEqual(
          yield* answerOf(host),
          `200 argued none 0 ${canary.length} none|hello there|hello there|1000|/srv/app|1000|false|`
        )
        const kept = podman("image", "inspect", done.imageDigest.replace("sha256:", ""))
        assert.notInclude(kept, "argued")
        for (const text of [kept, yield* logOf(path, id)]) assert.notInclude(text, canary)
        assert.deepStrictEqual(filesWith(canary, JSON.parse(kept)[0].GraphDriver.Data.UpperDir), [])
        const bad = yield* deploySource(
          path,
          file("Dockerfile", `FROM ${baseImage}\nRUN echo no such; exit 7\n`)
        )
        assert.match((yield* over(path, bad)).error, /line 2: RUN ended with the exit code 7/)
        const others = yield* deploySource(path, file("Dockerfile", "FROM localhost/svc-build/x:1\nCMD x\n"))
        assert.match((yield* over(path, others)).error, /names no registry/)
        for (const host of ["169.254.169.254", "10.0.0.5:8080"]) {
          const inner = yield* deploySource(path, file("Dockerfile", `FROM ${host}/a/b:1\nCMD x\n`))
          assert.match((yield* over(path, inner)).error, /requests do not go there/)
        }
        yield* nothingIsLeft
      }),
    patience
  )

  it.effect(
    "that fail say so, cancelled ones end with their containers, and what answered before goes on",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { path, host } = yield* makeShop("fails")
        yield* ready(path, yield* deploySource(path, file("index.html", "good")))
        const bad = yield* deploySource(path, stepsOf("echo no such thing >&2; exit 3"))
        const failed = yield* over(path, bad)
        assert.deepStrictEqual([failed.state, failed.errorCode], ["failed", "build_failed"])
        assert.include(yield* logOf(path, bad), "no such thing")
        const id = yield* deploySource(path, stepsOf("echo begun; sleep 600"))
        yield* eventually("it runs", logOf(path, id), (text) => text.includes("\nbegun"))
        assert.strictEqual((yield* readDeployment(path, id)).state, "building")
        assert.lengthOf(yield* buildContainers, 2)
        const cancelled = yield* call("POST", `${path}/deployments/${id}/cancel`)
        assert.strictEqual(cancelled.status, 202, cancelled.text)
        assert.strictEqual((yield* over(path, id)).state, "cancelled")
        assert.strictEqual(yield* answerOf(host), "200 good")
        yield* nothingIsLeft
      }),
    patience
  )

  it.effect(
    "go on when their containers were taken away, as after a crash",
    () =>
      Effect.gen(function* () {
        const { podman } = yield* Containers
        const { path, host } = yield* makeShop("crashed")
        const id = yield* deploySource(
          path,
          stepsOf("echo begun; while [ ! -e /tmp/go ]; do sleep 0.1; done"),
          file("x", `require("http").createServer((_, a) => a.end("up")).listen(process.env.PORT)`)
        )
        yield* eventually("it runs", logOf(path, id), (text) => text.includes("\nbegun"))
        for (const name of yield* buildContainers) podman("rm", "-f", "-t", "0", name)
        yield* eventually("it runs anew", logOf(path, id), (text) => text.split("\nbegun").length === 3)
        for (const name of yield* buildContainers)
          if (name.endsWith("-build")) podman("exec", name, "touch", "/tmp/go")
        yield* ready(path, id)
        assert.strictEqual(yield* answerOf(host), "200 up")
        assert.lengthOf((yield* logOf(path, id)).split("\nbegun"), 3)
        yield* nothingIsLeft
      }),
    patience
  )

  it.effect(
    "take no hostile archive, and nothing that has no plan",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { path } = yield* makeShop("hostile")
        const refused = Effect.fnUntraced(function* (content: Buffer, digest?: string) {
          const { status, body } = yield* send(path, content, digest)
          return `${status} ${body.code}`
        })
        const of = (...entries: ReadonlyArray<Entry>) =>
          Effect.flatMap(
            Effect.promise(() => tar(...entries)),
            (content) => refused(content)
          )
        assert.strictEqual(yield* of(file("../x", "1")), "422 archive_entry_refused")
        assert.strictEqual(yield* of(link("a", "/etc/passwd")), "422 archive_entry_refused")
        assert.strictEqual(yield* of({ name: "d", type: "block-device" }), "422 archive_entry_refused")
        assert.strictEqual(yield* of(file("x", "x".repeat(2 ** 21))), "413 archive_too_large")
        assert.strictEqual(yield* of(file("main.rb", "1")), "422 no_build_plan")
        assert.strictEqual(yield* refused(Buffer.from("no tar".repeat(200))), "422 archive_malformed")
        const good = yield* Effect.promise(() => tar(file("index.html", "1")))
        assert.strictEqual(yield* refused(good, digestOf(Buffer.from("2"))), "422 digest_mismatch")
        const none = yield* call("POST", `${path}/deployments`, { body: { upload: digestOf(good) } })
        assert.strictEqual(none.status, 422, none.text)
        const snake = yield* Effect.promise(() => tar(file("main.py", "1")))
        assert.strictEqual((yield* send(path, snake)).body.plan.runtime.name, "python")
        const nowhere = yield* call("POST", `${path}/deployments`, { body: { upload: digestOf(snake) } })
        assert.strictEqual(nowhere.status, 422, nowhere.text)
        assert.include(nowhere.text, "Nothing is built for Python here")
        const both = yield* call("POST", `${path}/deployments`, {
          body: { upload: digestOf(good), image: "alpine:3" }
        })
        assert.strictEqual(both.status, 422, both.text)
      }),
    patience
  )
})

const roundMs = 1_200_000

campaign(
  it.live,
  "hostile-builds",
  "a build reaches nothing of this machine and nobody's metadata, and finds no secrets",
  { rounds: 0, roundMs },
  hostileBuild
)
campaign(
  it.live,
  "greedy-builds",
  "a build that is silent, or takes more than its share of anything, ends, and others go on",
  { rounds: 0, roundMs },
  greedyBuilds
)
campaign(
  it.live,
  "killed-engine-builds",
  "a build goes on when the engine is killed, and is built once",
  { rounds: 0, roundMs },
  buildOfKilledEngine
)
campaign(
  it.live,
  "killed-builds",
  "a control plane that is killed while it builds brings the app up, and leaves nothing behind",
  { rounds: 0, roundMs },
  buildOfKilledPlane
)
campaign(
  it.live,
  "package-managers",
  "packages are installed by the lock file of each package manager, and fetched once",
  { rounds: 0, roundMs },
  packageManagers
)
campaign(
  it.live,
  "frameworks",
  "frameworks are built and answer without any instructions",
  { rounds: 0, roundMs: 2 * roundMs },
  frameworkBuilds
)
campaign(
  it.live,
  "example-app",
  "the example app finds its database and its cache, and is called by its queue and its cron job",
  { rounds: 0, roundMs },
  exampleApp
)
campaign(
  it.live,
  "deployments-disk",
  "fifty deployments of one app leave on the disk what can be chosen again, and nothing else",
  { rounds: 0, roundMs: 2 * roundMs },
  deploymentsOnDisk
)
