/** What the dashboard is built from, and whether what stands in `web/dist` was built from the same. */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { fileURLToPath } from "node:url"

const repository = fileURLToPath(new URL("../../", import.meta.url))
const web = path.join(repository, "web")

export const dist = path.join(web, "dist")
/** Lists, with their digests, the files that the build was made of. It is not served. */
export const inputsFile = "inputs.json"

/** Of a file, by its name within the repository. */
export const digestOf = async (file: string): Promise<string> =>
  createHash("sha256")
    .update(await fs.readFile(path.join(repository, file)))
    .digest("base64")

/** What every build is made of; which definitions of `src` and `schemas` are in it, the bundler says. */
export const ownFiles = async (): Promise<ReadonlyArray<string>> => {
  const entries = await fs.readdir(path.join(web, "src"), { recursive: true, withFileTypes: true })
  const sources = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => path.relative(repository, path.join(parentPath, name)))
  return [
    ...sources,
    "src/dashboard/build-inputs.ts",
    "web/build.ts",
    "web/index.html",
    "web/vite.config.ts",
    "package-lock.json"
  ].sort()
}

export const isBuilt = async (): Promise<boolean> => {
  try {
    const text = await fs.readFile(path.join(dist, inputsFile), "utf8")
    const built = new Map<string, unknown>(Object.entries(JSON.parse(text)))
    const own = await ownFiles()
    if (own.some((file) => !built.has(file))) return false
    const same = await Promise.all(
      [...built].map(async ([file, digest]) => (await digestOf(file)) === digest)
    )
    return same.every((one) => one)
  } catch {
    // There is no build, or a file of it is gone.
    return false
  }
}
