/** Which campaigns there are: the test files are read, and nobody keeps a list. */
import * as fs from "node:fs"
import * as path from "node:path"

export interface Declaration {
  readonly name: string
  readonly statement: string
  /** From the root of the repository. */
  readonly file: string
}

export const root = path.resolve(import.meta.dirname, "../..")

const declared = /\bcampaign\(\s*[\w.]+,\s*"([\w-]+)",\s*"([^"\n]+)"/g

/** In the order of their names. */
export const declarations = (): ReadonlyArray<Declaration> =>
  fs
    .globSync("{test,src,reconcilers,schemas}/**/*.test.ts", { cwd: root })
    .flatMap((file) =>
      [...fs.readFileSync(path.join(root, file), "utf8").matchAll(declared)].map(
        ([, name = "", statement = ""]) => ({ name, statement, file })
      )
    )
    .sort((a, b) => (a.name < b.name ? -1 : 1))
