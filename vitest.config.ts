import { availableParallelism } from "node:os"
import { defineConfig } from "vitest/config"
import { SlowFirst } from "./test/setup/slow-first.ts"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/setup/global.ts"],
    testTimeout: 120_000,
    hookTimeout: 180_000,
    // Tests wait for servers now and then, so one more than there are cores; all share one Postgres.
    maxWorkers: Math.min(6, availableParallelism() + 1),
    sequence: { sequencer: SlowFirst }
  }
})
