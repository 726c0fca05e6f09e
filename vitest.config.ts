import { availableParallelism } from "node:os"
import { defineConfig } from "vitest/config"

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
if (major < 24 || (major === 24 && minor < 7))
  throw new Error(`Tests need Node 24.7 or newer and run on ${process.version}: start them with "npm test"`)

const unit = "test/**/*.unit.test.ts"
const store = "test/**/*.store.test.ts"

/**
 * Tests and program are loaded by Node itself, as users load the program: what Vite makes of them takes longer to make
 * and longer to run. Only Vite can load a module anew with another one replaced, which a unit test does.
 */
const loadedByNode = { viteModuleRunner: false, nodeLoader: false } as const

/**
 * The tier of a test file is in its name (CONTRIBUTING.md, Tests). Tiers begin in the order of their names, and within
 * each the files that took longest in the last run come first: what machines are needed for never runs alone at the end.
 */
export default defineConfig({
  test: {
    // Half of the time of a test is waiting for servers, so four for two cores; more mostly wait for each other.
    maxWorkers: Math.min(8, availableParallelism() * 2),
    // Files of a tier share their worker's modules: to load the program again for each would be half of the work.
    isolate: false,
    // A heap that begins small is looked through twenty times while the program is loaded into it.
    execArgv: ["--min-semi-space-size=16", "--initial-old-space-size=300"],
    // What runs in processes that tests start is not counted.
    coverage: {
      provider: "v8",
      include: ["src/**/*.ts", "schemas/**/*.ts", "reconcilers/**/*.ts"],
      reporter: [["text", { skipFull: true }], "html"],
      reportOnFailure: true
    },
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: [unit],
          setupFiles: ["test/setup/no-processes.ts", "test/setup/no-network.ts"],
          testTimeout: 30_000,
          hookTimeout: 30_000
        }
      },
      {
        extends: true,
        test: {
          name: "store",
          experimental: loadedByNode,
          include: [store],
          globalSetup: ["test/setup/run-postgres.ts"],
          setupFiles: ["test/setup/no-processes.ts"],
          testTimeout: 120_000,
          hookTimeout: 120_000
        }
      },
      {
        extends: true,
        test: {
          name: "machine",
          experimental: loadedByNode,
          include: ["test/**/*.test.ts"],
          exclude: [unit, store],
          globalSetup: ["test/setup/run-machine.ts", "test/setup/run-postgres.ts"],
          // They end what hangs. A slow machine may take its time.
          testTimeout: 300_000,
          hookTimeout: 300_000
        }
      }
    ]
  }
})
