/** What fifty deployments of one app leave on the disk of their machine: no more than what can be chosen again. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { mostEarlier, sentEnding } from "#src/builds/earlier-archives.ts"
import { Uploads } from "#src/builds/Uploads.ts"
import { AppConfig } from "#src/config.ts"
import { Deployments } from "#src/deployments/Deployments.ts"
import { tidyImages } from "#src/deployments/tidy.ts"
import { Images } from "#src/executions/Images.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Host } from "#src/infra/host/Host.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { answerOf, makeShop, ready } from "#test/apps/world.ts"
import type { Round } from "#test/campaigns/campaign.ts"
import { Containers } from "#test/executions/world.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { file } from "./archives.ts"
import { buildPlane, deploySource, nothingIsLeft } from "./world.ts"

const count = 50
/** The one that answers, and five more to go back to. */
const kept = 6
/** What each deployment adds to the image. */
const partBytes = 1024 * 1024

const filesBelow = (folder: string): ReadonlyArray<{ readonly name: string; readonly bytes: number }> =>
  fs.readdirSync(folder, { recursive: true, encoding: "utf8" }).flatMap((name) => {
    // What runs makes and removes files meanwhile.
    const found = fs.lstatSync(path.join(folder, name), { throwIfNoEntry: false })
    return found?.isFile() === true ? [{ name, bytes: found.size }] : []
  })
const bytesOf = (files: ReadonlyArray<{ readonly bytes: number }>) =>
  files.reduce((sum, { bytes }) => sum + bytes, 0)

/** A round of each loop that tidies, as another process beside the control plane would have it. */
const tidied = Effect.gen(function* () {
  const { dataDir, databaseUrl } = yield* Plane
  const { socket } = yield* Containers
  const services = Layer.mergeAll(
    Deployments.layer,
    Uploads.layer,
    Images.layer.pipe(Layer.provideMerge(ContainerEngine.layer))
  ).pipe(
    Layer.provide(Layer.mergeAll(KeyRing.layerEphemeral, Host.layer)),
    Layer.provide(Db.layer({ url: Redacted.make(databaseUrl) })),
    Layer.provide(AppConfig.layerWith({ dataDir, containerSocket: socket }))
  )
  const round = Effect.gen(function* () {
    yield* tidyImages
    const { wantingUploads } = yield* Deployments
    return yield* (yield* Uploads).sweep(wantingUploads)
  })
  return yield* Effect.provide(round, services)
})

/** As if everything had been sent two hours before: by then nobody may come back for it. */
const ageUploads = (dataDir: string) =>
  Effect.sync(() => {
    const folder = path.join(dataDir, "uploads")
    const then = Date.now() / 1_000 - 7_200
    for (const { name } of filesBelow(folder)) fs.utimesSync(path.join(folder, name), then, then)
  })

/** What there is, once everything that may go is gone. */
const leftBehind = Effect.gen(function* () {
  const { podman, folder } = yield* Containers
  const { dataDir } = yield* Plane
  const listed = (...args: ReadonlyArray<string>) =>
    podman(...args)
      .split("\n")
      .filter((line) => line !== "")
  yield* nothingIsLeft
  yield* ageUploads(dataDir)
  const look = Effect.sync(() => {
    const built = listed("images", "-a", "--format", "{{.Repository}}").filter((name) =>
      name.startsWith("localhost/svc-build/")
    )
    const uploads = filesBelow(path.join(dataDir, "uploads"))
    return {
      built: built.length,
      images: listed("images", "-a", "-q", "--no-trunc").length,
      containers: listed("ps", "-a", "-q").length,
      noted: fs.readdirSync(path.join(dataDir, "images")).length,
      sources: uploads.filter(({ name }) => name.endsWith(".tar")).length,
      earlier: uploads.filter(({ name }) => name.endsWith(sentEnding)).length,
      uploadBytes: bytesOf(uploads),
      engineBytes: bytesOf(filesBelow(path.join(folder, "root")))
    }
  })
  return yield* eventually(
    "what may go is gone",
    Effect.andThen(tidied, look),
    ({ built, containers, sources }) => built <= kept && containers === 1 && sources === 0
  )
})

export const deploymentsOnDisk = ({ seed }: Round) =>
  Effect.gen(function* () {
    const { path: shop, host } = yield* makeShop(`kept-${seed}`)
    const deployAnother = Effect.fnUntraced(function* (number: number) {
      const id = yield* deploySource(
        shop,
        file("svc.yaml", JSON.stringify({ build: { build: "node build.js", start: "exec node server.js" } })),
        file("package.json", "{}"),
        file("build.js", `require("fs").writeFileSync("part", require("crypto").randomBytes(${partBytes}))`),
        file(
          "server.js",
          `require("http").createServer((_, a) => a.end("${seed} ${number}")).listen(process.env.PORT)`
        )
      )
      yield* ready(shop, id)
    })
    for (let number = 1; number <= kept; number++) yield* deployAnother(number)
    const few = yield* leftBehind
    assert.strictEqual(few.built, kept)
    for (let number = kept + 1; number <= count; number++) yield* deployAnother(number)
    const many = yield* leftBehind
    assert.strictEqual(yield* answerOf(host), `200 ${seed} ${count}`)
    assert.deepStrictEqual(
      [many.built, many.images, many.noted, many.containers],
      [few.built, few.images, few.noted, few.containers]
    )
    assert.isAtMost(many.earlier, mostEarlier)
    // Less than one deployment: nothing of the forty-four others is there.
    assert.isBelow(many.engineBytes - few.engineBytes, partBytes)
    assert.isBelow(many.uploadBytes, 1024 * 1024)
  }).pipe(Effect.provide(buildPlane()))
