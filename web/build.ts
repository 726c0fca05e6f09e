/**
 * Builds the dashboard into `web/dist`, unless what is there was made of the same files. `npm ci` runs it, and so does
 * every start of a control plane that serves the API.
 *
 * What is built stands beside the old until it is complete, so a process that starts meanwhile finds one or the other.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { promisify } from "node:util"
import { brotliCompress, constants, gzip } from "node:zlib"
import type { Plugin } from "vite"
import { digestOf, dist, inputsFile, isBuilt, ownFiles } from "../src/dashboard/build-inputs.ts"

const folder = import.meta.dirname
const repository = path.dirname(folder)

/** Collects the files of this repository that went into the bundle. */
const collecting = (found: Set<string>): Plugin => ({
  name: "collect-inputs",
  generateBundle() {
    for (const id of this.getModuleIds()) {
      const file = path.relative(repository, id.split("?", 1)[0] ?? "")
      if (path.isAbsolute(id) && !file.startsWith("..") && !file.includes("node_modules")) found.add(file)
    }
  }
})

const brotli = promisify(brotliCompress)
const zip = promisify(gzip)
/** Beside each file that is worth it, its compressed forms. */
const compressAll = async (into: string): Promise<void> => {
  const files = await fs.readdir(into, { recursive: true })
  await Promise.all(
    files
      .filter((file) => /\.(js|css|svg)$/.test(file))
      .map(async (file) => {
        const target = path.join(into, file)
        const content = await fs.readFile(target)
        const params = { [constants.BROTLI_PARAM_SIZE_HINT]: content.length }
        await fs.writeFile(`${target}.br`, await brotli(content, { params }))
        await fs.writeFile(`${target}.gz`, await zip(content, { level: 9 }))
      })
  )
}

/** Moves the new build where the old one was. Of two that are built at once, the later one stays. */
const replace = async (built: string): Promise<void> => {
  for (let attempt = 0; ; attempt++) {
    await fs.rm(dist, { recursive: true, force: true })
    try {
      return await fs.rename(built, dist)
    } catch (error) {
      if (attempt === 5) throw error
    }
  }
}

/** Answers whether there was something to build. */
export const buildDashboard = async (): Promise<boolean> => {
  if (await isBuilt()) return false
  const into = path.join(folder, `dist-${process.pid}`)
  const found = new Set(await ownFiles())
  // Before the build: a file that changes meanwhile makes the next start build again.
  const own = new Map(
    await Promise.all([...found].map(async (file) => [file, await digestOf(file)] as const))
  )
  const vite = await import("vite")
  try {
    await vite.build({
      configFile: path.join(folder, "vite.config.ts"),
      logLevel: "warn",
      mode: "production",
      plugins: [collecting(found)],
      build: { outDir: into, emptyOutDir: true }
    })
    await compressAll(into)
    for (const file of found) if (!own.has(file)) own.set(file, await digestOf(file))
    await fs.writeFile(path.join(into, inputsFile), JSON.stringify(Object.fromEntries(own)))
    await replace(into)
  } finally {
    await fs.rm(into, { recursive: true, force: true })
  }
  return true
}

if (import.meta.main) {
  const started = performance.now()
  if (await buildDashboard())
    console.log(`The dashboard is built (${((performance.now() - started) / 1000).toFixed(1)} s)`)
}
