/** A cron job that publishes to a queue has that queue in its environment, and keeps it from being deleted. */
import type { ManifestProject } from "#schemas/manifest.ts"
import { defaultEnvironment } from "#schemas/names.ts"
import { addressOf } from "#src/store/records.ts"
import type { Draft } from "./draft.ts"
import { asObject } from "./patch.ts"
import type { Path } from "./place.ts"

/** Comes after the project's entries are planned: what the plan deletes is known then. */
export const blockMissingQueues = (draft: Draft, project: ManifestProject, at: Path): void => {
  const idOf = (environment: string | null, queue: string) => `${environment}/${queue}`
  const there = draft.state.inProject(project.slug)
  const queues = new Set(
    (project.queues ?? []).map(({ name, environment }) => idOf(environment ?? defaultEnvironment, name))
  )
  const deleted = new Map<string, string>()
  for (const one of there) {
    if (one.kind !== "Queue") continue
    const id = idOf(one.environment, one.name)
    if (!draft.doomed.has(one.uid)) queues.add(id)
    else if (!queues.has(id)) deleted.set(id, addressOf(one))
  }
  /** Queues that stored cron jobs publish to. */
  const stored = new Map<string, string>()
  for (const one of there) {
    if (one.kind !== "Cron" || draft.doomed.has(one.uid)) continue
    const target = asObject(asObject(one.spec)["target"])
    if (target["kind"] === "queue") stored.set(idOf(one.environment, one.name), String(target["queue"]))
  }
  const named = new Set<string>()
  for (const [index, { name, environment = defaultEnvironment, target }] of (project.crons ?? []).entries()) {
    const id = idOf(environment, name)
    named.add(id)
    if (target?.kind !== "queue") continue
    const queue = idOf(environment, target.queue)
    if (queues.has(queue)) continue
    const path = [...at, "crons", index, "target", "queue"]
    const message = `names the queue "${target.queue}", which "${environment}" does not have`
    // It is so already, and the plan makes it no worse: what was exported can be applied.
    if (stored.get(id) === target.queue && !deleted.has(queue)) draft.warn(path, message)
    else draft.block(path, "unknown_queue", message)
  }
  if (deleted.size === 0) return
  for (const one of there) {
    const id = idOf(one.environment, one.name)
    const target = stored.get(id)
    if (one.kind !== "Cron" || target === undefined || named.has(id)) continue
    const queue = deleted.get(idOf(one.environment, target))
    if (queue === undefined) continue
    draft.block(
      [...at, "queues"],
      "in_use",
      `${queue} would be deleted, and ${addressOf(one)} publishes to it`
    )
  }
}
