/** Server programs that run in an older version than there is. */
import * as Effect from "effect/Effect"
import { Cache } from "#schemas/cache.ts"
import { Database } from "#schemas/database.ts"
import { DatabaseBranch } from "#schemas/database-branch.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import type { Finding } from "../finding.ts"
import { type Check, findingOf, ofKind, type Unknown, unknownOf } from "../look.ts"

/**
 * The first minor release of each major version of PostgreSQL without security faults that were known when this was
 * written (postgresql.org, "Security Information"). Distributions mend Redis without changing its version, so that its
 * number tells nothing of that.
 */
const withoutKnownFaults: Readonly<Record<string, string>> = {
  "PostgreSQL 14": "14.20",
  "PostgreSQL 15": "15.15",
  "PostgreSQL 16": "16.11",
  "PostgreSQL 17": "17.7",
  "PostgreSQL 18": "18.1"
}

const typed = [ofKind(Database), ofKind(DatabaseBranch), ofKind(Cache)]

interface Server {
  readonly record: ResourceRecord
  /** Program and major version, within which a newer one only mends faults. */
  readonly line: string
  readonly version: string
}

/** `PostgreSQL 18.4 (Debian ...)`, `redis 7.0.15`. */
const serverOf = (record: ResourceRecord, text: string | null | undefined): Server | Unknown => {
  const parts = /^(\w+) (\d+)((?:\.\d+)+)/.exec(text ?? "")
  return parts === null
    ? unknownOf("old-version", record)
    : { record, line: `${parts[1]} ${parts[2]}`, version: `${parts[2]}${parts[3]}` }
}

/** Whether version `a` is before `b`, number by number. */
export const isOlder = (a: string, b: string): boolean => {
  const [left, right] = [a, b].map((text) => text.split(".").map(Number))
  for (let index = 0; index < Math.max(left?.length ?? 0, right?.length ?? 0); index++) {
    const difference = (left?.[index] ?? 0) - (right?.[index] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return false
}

export const versions: Check = ({ resources }) =>
  Effect.sync(() => {
    const servers = typed.flatMap((of) =>
      of(resources).map(({ record, status }) => serverOf(record, status?.server))
    )
    /** The newest that runs here: where one does, the others can. */
    const newest = new Map<string, string>()
    for (const server of servers) {
      if ("unknown" in server) continue
      const { line, version } = server
      const before = newest.get(line)
      if (before === undefined || isOlder(before, version)) newest.set(line, version)
    }
    return servers.flatMap((server): ReadonlyArray<Finding | Unknown> => {
      if ("unknown" in server) return [server]
      const { record, line, version } = server
      const fixed = withoutKnownFaults[line]
      const isFaulty = fixed !== undefined && isOlder(version, fixed)
      const running = newest.get(line) ?? version
      if (!isFaulty && !isOlder(version, running)) return []
      const wanted = isFaulty && isOlder(running, fixed) ? fixed : running
      return [
        findingOf("versions", "old-version", record, {
          severity: isFaulty ? "warning" : "info",
          summary: `The server of "${record.name}" runs ${line.split(" ")[0]} ${version}; ${wanted} mends faults of it`,
          risk: isFaulty
            ? "It has faults that are known and can be used against it."
            : "It has faults that a later version does not have.",
          evidence: { running: version, fixed: wanted },
          remedy: null,
          basis: `${version} ${wanted}`
        })
      ]
    })
  })
