/**
 * The order of test files: those that take long begin first, or one of them would run alone at the end. What vitest
 * remembers of earlier runs would do, but a new clone remembers nothing.
 */
import { BaseSequencer, type TestSpecification } from "vitest/node"

/** Those that take more than about ten seconds, the longest first. */
const slow: ReadonlyArray<string> = [
  "faults/data.test.ts",
  "executions/crash.test.ts",
  "branches/killed.test.ts",
  "branches/life.test.ts",
  "reconcilers/execution.test.ts",
  "branches/point-in-time.test.ts",
  "cli/up.test.ts",
  "replicas/whole.test.ts",
  "replicas/failover.test.ts",
  "reconcilers/database.test.ts",
  "backups/trouble.test.ts",
  "faults/crash.test.ts",
  "executions/runs.test.ts",
  "reconcilers/cache.test.ts",
  "reconcilers/lost-data.test.ts",
  "reconcilers/database-branch.test.ts",
  "cli/services.test.ts",
  "canary.test.ts",
  "executions/turns.test.ts",
  "branches/cli.test.ts",
  "reconcilers/database-replicas.test.ts",
  "executions/tidy.test.ts",
  "replicas/standbys.test.ts",
  "engine/simulation.test.ts",
  "backups/jobs.test.ts",
  "cli/executions.test.ts",
  "executions/own.test.ts",
  "backups/destinations.test.ts",
  "backups/s3-place.test.ts",
  "identity/browser.test.ts",
  "reconcilers/backup-destination.test.ts",
  "cli/people.test.ts",
  "crons/runs.test.ts",
  "engine/worker.test.ts",
  "conformance/database-branches.test.ts",
  "crons/crash.test.ts",
  "branches/far-away.test.ts",
  "faults/store-restart.test.ts",
  "backups/cli.test.ts",
  "executions/lost.test.ts",
  "queues/delivery.test.ts",
  "infra/redis-servers.test.ts",
  "cli/manifest.test.ts",
  "crons/schedule.test.ts",
  "faults/sharing.test.ts",
  "store/start.test.ts",
  "access/departures.test.ts",
  "reconcilers/queue.test.ts",
  "webhooks/crash.test.ts",
  "backups/restore.test.ts",
  "branches/lost-folder.test.ts",
  "queues/example.test.ts",
  "branches/stopping.test.ts",
  "conformance/backup-destinations.test.ts",
  "queues/crash.test.ts",
  "conformance/backups.test.ts",
  "cli/usage.test.ts",
  "identity/security.test.ts",
  "cli/webhooks.test.ts",
  "reconcilers/cache-operation.test.ts",
  "mail/deliver.test.ts",
  "budgets/cli.test.ts",
  "reconcilers/cron.test.ts",
  "infra/container-network.test.ts",
  "faults/clocks.test.ts"
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
