/** In tiers without processes, starting one fails and says where such a test belongs. */
import childProcess from "node:child_process"
import { syncBuiltinESMExports } from "node:module"

const refuse = (): never => {
  throw new Error("A test that starts processes is named x.test.ts (CONTRIBUTING.md, Tests)")
}

for (const name of ["exec", "execFile", "execFileSync", "execSync", "fork", "spawn", "spawnSync"] as const)
  Object.defineProperty(childProcess, name, { value: refuse, enumerable: true, configurable: true })
// What the program has imported by name is replaced as well.
syncBuiltinESMExports()
