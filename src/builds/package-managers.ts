/** Package managers of Node: which one a project is for, and how it is called. */
import * as Result from "effect/Result"
import { PlanRefused } from "./plan-refused.ts"

const managers = ["npm", "pnpm", "yarn"] as const

export const lockfiles: ReadonlyArray<readonly [file: string, manager: string]> = [
  ["package-lock.json", "npm"],
  ["npm-shrinkwrap.json", "npm"],
  ["pnpm-lock.yaml", "pnpm"],
  ["yarn.lock", "yarn"],
  ["bun.lock", "bun"],
  ["bun.lockb", "bun"]
]

export interface PackageManager {
  readonly name: (typeof managers)[number]
  /** What calls it: npm comes with Node, the others are fetched in the version that package.json names. */
  readonly program: string
  readonly isLocked: boolean
  /** Version 1 of yarn, whose options are others. */
  readonly isClassicYarn: boolean
}

/** `names`: of the files beside the lock file; `wanted`: the field `packageManager` of package.json. */
export const managerOf = (
  names: ReadonlySet<string>,
  wanted: string | undefined
): Result.Result<PackageManager, PlanRefused> => {
  const locked = [...new Set(lockfiles.flatMap(([file, manager]) => (names.has(file) ? [manager] : [])))]
  if (locked.length > 1)
    return Result.fail(
      new PlanRefused({
        code: "several_lockfiles",
        message: `There are lock files of ${locked.join(" and ")}; keep one of them`
      })
    )
  const [named, version] = wanted?.split("+", 1)[0]?.split("@") ?? []
  const chosen = locked[0] ?? named ?? "npm"
  const name = managers.find((one) => one === chosen)
  const exact = named === name ? version : undefined
  if (name === undefined || (exact !== undefined && !/^\d+(\.\d+){0,2}(-[\w.]+)?$/.test(exact)))
    return Result.fail(
      new PlanRefused({
        code: "package_manager_unsupported",
        message: `The package manager ${chosen}${exact === undefined ? "" : `@${exact}`} is none of ${managers.join(", ")}`
      })
    )
  const isClassicYarn = name === "yarn" && (exact === undefined || exact.startsWith("1"))
  return Result.succeed({
    name,
    program: programOf(name, exact, isClassicYarn),
    isLocked: locked.length > 0,
    isClassicYarn
  })
}

const programOf = (
  name: PackageManager["name"],
  exact: string | undefined,
  isClassicYarn: boolean
): string => {
  if (name === "npm") return "npm"
  if (name === "pnpm") return `npx --yes pnpm@${exact ?? "10"}`
  return isClassicYarn
    ? `npx --yes yarn@${exact ?? "1"}`
    : `npx --yes --package=@yarnpkg/cli-dist@${exact} yarn`
}

export const installOf = ({ name, program, isLocked, isClassicYarn }: PackageManager): string => {
  if (name === "npm") return `npm ${isLocked ? "ci" : "install"} --no-audit --no-fund`
  const locked = name === "yarn" && !isClassicYarn ? " --immutable" : " --frozen-lockfile"
  return `${program} install${isLocked ? locked : ""}`
}
