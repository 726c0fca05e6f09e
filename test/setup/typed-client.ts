/** What others make of the specification: TypeScript types, and a client that the compiler holds against them. */
import { execFile } from "node:child_process"
import * as fs from "node:fs"
import { registerHooks } from "node:module"
import * as path from "node:path"
import { promisify } from "node:util"

const root = path.resolve(import.meta.dirname, "../..")
const execute = promisify(execFile)

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "typescript" && context.parentURL?.includes("/node_modules/openapi-typescript/") === true
      ? { url: new URL("./typescript-api.ts", import.meta.url).href, shortCircuit: true }
      : next(specifier, context)
})

/** A folder's `page-paths.ts`, for a program beside it that may import packages of ours. */
export const writeTypes = async (folder: string, document: string): Promise<void> => {
  const { default: toTypes, astToString } = await import("openapi-typescript")
  fs.writeFileSync(path.join(folder, "paths.ts"), astToString(await toTypes(document)))
  fs.symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"))
  fs.writeFileSync(path.join(folder, "package.json"), '{"type":"module"}')
}

const run = async (
  program: string,
  args: ReadonlyArray<string>,
  cwd: string,
  env: Record<string, string> = {}
) => {
  const result = execute(process.execPath, [path.join(root, program), ...args], {
    cwd,
    env: { ...process.env, ...env },
    maxBuffer: 64 * 1024 * 1024
  })
  return result.then(
    ({ stdout }) => ({ code: 0, output: stdout }),
    (error: { code: number; stdout: string; stderr: string }) => ({
      code: error.code,
      output: error.stdout + error.stderr
    })
  )
}

export const compile = (folder: string, program: string) =>
  run(
    "node_modules/typescript/bin/tsc",
    [
      ...[
        "--strict",
        "--exactOptionalPropertyTypes",
        "--noEmit",
        "--skipLibCheck",
        "--allowImportingTsExtensions"
      ],
      ...["--target", "es2024", "--module", "nodenext", "--lib", "es2024,dom", "--types", "node", program]
    ],
    folder
  )

/** Every rule that Redocly recommends, warnings too. */
export const lint = (folder: string, document: string) =>
  run("node_modules/@redocly/cli/bin/cli.js", ["lint", document, "--extends=recommended-strict"], folder, {
    REDOCLY_TELEMETRY: "off",
    REDOCLY_SUPPRESS_UPDATE_NOTICE: "true"
  })
