// The program in few files, which starts in less than half of the time. Plain JavaScript: loading the compiler of types
// would cost as much as it saves.
import { createHash } from "node:crypto"
import { existsSync, readdirSync, statSync } from "node:fs"
import { fileURLToPath } from "node:url"

export const root = fileURLToPath(new URL("../../../", import.meta.url))
/** Has a folder for each bundle, named by its stamp: a program that runs still loads files of the one it was started from. */
export const bundles = `${root}node_modules/.cache/svc-program/`

/** Source changes with these; the second is npm's account of what is installed. */
const folders = ["schemas", "reconcilers", "src"]
const files = ["package.json", "node_modules/.package-lock.json"]

/**
 * What the bundle was made from: each file's name, size and time of change.
 * @returns {string}
 */
export const stamp = () => {
  const hash = createHash("sha256")
  /** @param {string} name */
  const add = (name) => {
    const { size, mtimeMs } = statSync(root + name)
    hash.update(`${name} ${size} ${mtimeMs}\n`)
  }
  hash.update(`${process.version}\n`)
  for (const file of files) add(file)
  for (const folder of folders)
    for (const name of readdirSync(root + folder, { recursive: true, encoding: "utf8" }).sort())
      if (name.endsWith(".ts") || name.endsWith(".mjs")) add(`${folder}/${name}`)
  return hash.digest("hex")
}

/**
 * The bundle's first file, if there is a bundle of this very source.
 * @returns {string | undefined}
 */
export const freshBundle = () => {
  try {
    const first = `${bundles}${stamp()}/main.js`
    return existsSync(first) ? first : undefined
  } catch {
    // A file went while it was looked at: the source says the same, more slowly.
    return undefined
  }
}
