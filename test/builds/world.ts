/** A control plane that builds, on a base image made of this machine's own Node, npm and busybox. */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { BuildOptions } from "#src/builds/options.ts"
import { appPlane, containersOf } from "#test/apps/world.ts"
import { newUser } from "#test/cli/svc.ts"
import { Containers } from "#test/executions/world.ts"
import type { Engine } from "#test/setup/containers.ts"
import { type Answer, Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { digestOf, type Entry, tar } from "./archives.ts"

export const baseImage = "localhost/test/node:1"

const commands =
  "sh ls cat cp mv rm mkdir chmod sleep env id printf echo test true false head tail grep sed find touch ln"

const authorities = "etc/ssl/certs/ca-certificates.crt"

/** In one archive, which the engine takes at once: it would copy file by file what it builds. */
export const makeBase = ({ folder, podman }: Engine) => {
  const root = path.join(folder, "base")
  for (const name of ["bin", "usr/bin", "usr/local/bin", "usr/local/lib/node_modules", "etc", "tmp", "lib64"])
    fs.mkdirSync(path.join(root, name), { recursive: true })
  const copy = (from: string, to: string) => {
    const target = path.join(root, to)
    fs.mkdirSync(path.dirname(target), { recursive: true })
    // Only the archive is kept: it may as well be made of links, where both are on the same disk.
    const linked = spawnSync("cp", ["-rlH", from, target], { stdio: "ignore" })
    if (linked.status === 0) return
    fs.rmSync(target, { recursive: true, force: true })
    fs.cpSync(fs.realpathSync(from), target, { recursive: true, verbatimSymlinks: true })
  }
  copy(process.execPath, "usr/local/bin/node")
  copy("/bin/busybox", "bin/busybox")
  for (const name of commands.split(" ")) fs.symlinkSync("busybox", path.join(root, "bin", name))
  fs.symlinkSync("/bin/env", path.join(root, "usr/bin/env"))
  const libraries = spawnSync("ldd", [process.execPath], { encoding: "utf8" }).stdout
  for (const [file] of libraries.matchAll(/\/lib[^ ]*/g)) copy(file, file)
  // What native parts of packages ask for.
  const libc = /(\/lib\S*)\/libc\.so/.exec(libraries)?.[1] ?? ""
  for (const name of ["librt.so.1", "libresolv.so.2", "libutil.so.1"]) {
    const file = path.join(libc, name)
    if (fs.existsSync(file)) copy(file, file)
  }
  const npm = fs.realpathSync(spawnSync("which", ["npm"], { encoding: "utf8" }).stdout.trim())
  copy(path.resolve(npm, "../.."), "usr/local/lib/node_modules/npm")
  for (const name of ["docs", "man"])
    fs.rmSync(path.join(root, "usr/local/lib/node_modules/npm", name), { recursive: true, force: true })
  for (const name of ["npm", "npx"])
    fs.symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, path.join(root, "usr/local/bin", name))
  fs.writeFileSync(path.join(root, "etc/passwd"), "root:x:0:0::/:/bin/sh\nnode:x:1000:1000::/tmp:/bin/sh\n")
  fs.writeFileSync(path.join(root, "etc/group"), "root:x:0:\nnode:x:1000:\n")
  fs.chmodSync(path.join(root, "tmp"), 0o1777)
  // Who runs this may sit behind a proxy with an authority of its own.
  copy("/etc/ssl/certs/ca-certificates.crt", authorities)
  const archive = `${root}.tar`
  spawnSync("tar", ["--owner=0", "--group=0", "--numeric-owner", "-C", root, "-cf", archive, "."])
  podman(
    "import",
    "-q",
    "-c",
    "ENV PATH=/usr/local/bin:/bin:/usr/bin",
    "-c",
    `ENV NODE_EXTRA_CA_CERTS=/${authorities}`,
    "-c",
    'CMD ["node"]',
    archive,
    baseImage
  )
  fs.rmSync(root, { recursive: true })
  fs.rmSync(archive)
}

/** `makeMore`: other images to build on, which it names as the setting does. */
export const buildPlane = (
  values: Partial<BuildOptions> = {},
  makeMore: (engine: Engine) => string = () => "",
  variables: Readonly<Record<string, string>> = {},
  containers = Containers.layer
) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const engine = yield* Containers
      makeBase(engine)
      const images = `${baseImage},${makeMore(engine)}`
      const defaults = yield* BuildOptions
      const given = { SVC_BUILD_IMAGE: images, SVC_UPLOAD_MB: "1", SVC_BUILD_FREE_MB: "256", ...variables }
      return appPlane({}, given, containers).pipe(
        Layer.provide(Layer.succeed(BuildOptions, { ...defaults, ...values }))
      )
    })
  ).pipe(Layer.provideMerge(containers))

export const send = (path: string, content: Buffer, digest = digestOf(content)) =>
  Effect.flatMap(Plane, ({ call }) =>
    call("PUT", `${path}/uploads/${digest}`, {
      raw: content.toString("latin1"),
      headers: { "content-type": "application/x-tar" }
    })
  )

/** Uploads these files and asks for a deployment of them. Answers its id. */
export const deploySource = Effect.fnUntraced(function* (path: string, ...entries: ReadonlyArray<Entry>) {
  const { call } = yield* Plane
  const content = yield* Effect.promise(() => tar(...entries))
  const sent = yield* send(path, content)
  if (sent.status !== 200) return yield* Effect.die(new Error(sent.text))
  const made = yield* call("POST", `${path}/deployments`, { body: { upload: sent.body.digest } })
  if (made.status !== 202) return yield* Effect.die(new Error(made.text))
  return String(made.body.id)
})

export const logOf = Effect.fnUntraced(function* (path: string, id: string) {
  const { call } = yield* Plane
  const { body } = yield* call("GET", `${path}/deployments/${id}/logs?limit=1000`)
  return body.items.map(({ text }: Answer["body"]) => text).join("")
})

const isOfBuild = /-(build|image)$/
/** Names of containers that builds have made. */
export const buildContainers = Effect.gen(function* () {
  const all = yield* containersOf("svc.installation")
  return all.filter((name) => isOfBuild.test(name))
})
export const nothingIsLeft = eventually("nothing is left", buildContainers, (names) => names.length === 0)

/** A user of the command line, signed in to this control plane, with these files in a folder `app`. */
export const userWith = Effect.fnUntraced(function* (files: Readonly<Record<string, string>>) {
  const { url, apiKey, session } = yield* Plane
  const user = yield* newUser
  user.signIn({ apiUrl: url, organization: "main", apiKey, session })
  for (const [name, content] of Object.entries(files)) {
    const file = path.join(user.cwd, "app", name)
    fs.mkdirSync(path.dirname(file), { recursive: true })
    fs.writeFileSync(file, content)
  }
  return user
})
