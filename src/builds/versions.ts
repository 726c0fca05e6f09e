/**
 * Which versions of what it runs on an app asks for, as ranges that npm writes (node-semver), whatever wrote them. By
 * these one of the configured images is chosen.
 */
import * as Result from "effect/Result"
import semver from "semver"
import type { Runtime } from "#schemas/build-plan.ts"
import { PlanRefused } from "./plan-refused.ts"

/** One place that may say a version. `read`: how it is written there; undefined: any version. */
export interface Said {
  readonly by: string
  readonly text: string | undefined
  readonly read: (text: string) => string | undefined
  /** What cannot be read there says nothing, as others that read it have it. */
  readonly lenient?: boolean
}

/** The first that says something counts. */
export const wanted = (
  name: Runtime["name"],
  places: ReadonlyArray<Said>
): Result.Result<Runtime, PlanRefused> => {
  for (const { by, text, read, lenient } of places) {
    if (text === undefined || text.trim() === "") continue
    const range = read(text.trim())
    if (range === undefined) return Result.succeed({ name, versions: null, saidBy: null })
    if (range.length <= 256 && semver.validRange(range) !== null)
      return Result.succeed({ name, versions: range, saidBy: by })
    if (lenient === true) continue
    return Result.fail(
      new PlanRefused({
        code: "bad_settings",
        message: `${by} names no version of ${name}: ${text.slice(0, 100)}`
      })
    )
  }
  return Result.succeed({ name, versions: null, saidBy: null })
}

/** Names of the long-term lines of Node (its release schedule), as nvm knows them. */
const lines: ReadonlyMap<string, string> = new Map([
  ["hydrogen", "18"],
  ["iron", "20"],
  ["jod", "22"],
  ["krypton", "24"]
])

/** As nvm and others read `.nvmrc` and `.node-version`. */
export const nodeVersion = (text: string): string | undefined => {
  const word =
    text
      .split(/\s*(?:#|\n)/, 1)[0]
      ?.trim()
      .toLowerCase() ?? ""
  if (word === "node" || word === "stable" || word === "lts/*") return undefined
  return lines.get(word.replace(/^lts\//, "")) ?? word
}

/** `requires-python` and `.python-version` (PEP 440); `!=` is left out, which images are not chosen by. */
export const pythonVersions = (text: string): string | undefined => {
  const parts = text
    .replaceAll("\n", ",")
    .split(",")
    .map((part) => part.replaceAll(" ", ""))
    .filter((part) => part !== "" && !part.startsWith("!=") && !part.startsWith("#"))
  const ranges = parts.map((part) => {
    const compatible = /^~=(\d+)\.(\d+)(\.\d+)*$/.exec(part)
    if (compatible !== null) {
      const [, major, minor, patch] = compatible
      return `>=${part.slice(2)} <${patch === undefined ? Number(major) + 1 : `${major}.${Number(minor) + 1}`}`
    }
    return part.replace(/^={2,3}/, "").replace(/\.\*$/, "")
  })
  return ranges.length === 0 ? undefined : ranges.join(" ")
}

/** Whether an image of this version (`26`, `3.13`) has one of the range. */
export const fits = (version: string, { versions }: Runtime): boolean =>
  versions === null || semver.intersects(versions, version)
