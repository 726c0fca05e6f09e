import { availableParallelism } from "node:os"
import { defineConfig } from "vitest/config"
import { SlowFirst } from "./test/setup/slow-first.ts"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/setup/global.ts"],
    // They end what hangs. A slow machine may take its time.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // Tests wait for servers now and then, so one more than there are cores; all share one Postgres.
    maxWorkers: Math.min(6, availableParallelism() + 1),
    sequence: { sequencer: SlowFirst }
  }
})
