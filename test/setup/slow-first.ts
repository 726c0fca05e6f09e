/**
 * The order of test files: those that take long begin first, or one of them would run alone at the end. What vitest
 * remembers of earlier runs would do, but a new clone remembers nothing.
 */
import { BaseSequencer, type TestSpecification } from "vitest/node"

/** Those that take more than about ten seconds, the longest first. */
const slow: ReadonlyArray<string> = [
  "faults/data.test.ts",
  "faults/data-light.test.ts",
  "reconcilers/execution.test.ts",
  "reconcilers/database-branch.test.ts",
  "branches/point-in-time.test.ts",
  "executions/runs.test.ts",
  "canary.test.ts",
  "executions/crash.test.ts",
  "branches/life.test.ts",
  "replicas/failover.test.ts",
  "reconcilers/database.test.ts",
  "reconcilers/database-replicas.test.ts",
  "branches/killed.test.ts",
  "cli/services.test.ts",
  "engine/simulation.test.ts",
  "conformance/executions.test.ts",
  "cli/executions.test.ts",
  "backups/jobs.test.ts",
  "faults/crash.test.ts",
  "crons/crash.test.ts",
  "backups/trouble.test.ts",
  "replicas/standbys.test.ts",
  "faults/store-restart.test.ts",
  "reconcilers/cache.test.ts",
  "branches/cli.test.ts",
  "cli/manifest.test.ts",
  "cli/up.test.ts",
  "identity/browser.test.ts",
  "backups/s3-place.test.ts",
  "queues/crash.test.ts",
  "cli/people.test.ts",
  "crons/runs.test.ts",
  "queues/delivery.test.ts",
  "cli/usage.test.ts",
  "branches/stopping.test.ts",
  "crons/schedule.test.ts",
  "conformance/backups.test.ts",
  "backups/restore.test.ts",
  "mail/deliver.test.ts",
  "backups/cli.test.ts",
  "backups/destinations.test.ts",
  "access/departures.test.ts",
  "budgets/cli.test.ts"
]

const rank = ({ moduleId }: TestSpecification): number => {
  const found = slow.findIndex((file) => moduleId.endsWith(`/test/${file}`))
  return found < 0 ? slow.length : found
}

export class SlowFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>): Promise<Array<TestSpecification>> {
    const others = await super.sort(files)
    return others.sort((a, b) => rank(a) - rank(b))
  }
}
