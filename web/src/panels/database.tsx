/** A database: how to connect, its standbys, every moment that it can be put back to, its backups and its branches. */
import { Database } from "#src/databases/api.ts"
import { idempotent } from "../api/call.ts"
import { database, databases } from "../api/databases.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { bytes } from "../parts/amounts.ts"
import { Answered } from "../parts/answered.tsx"
import { Panel } from "../parts/panel.tsx"
import { Table } from "../parts/table.tsx"
import { Ago, At, duration } from "../parts/time.tsx"
import { Backups } from "./backups.tsx"
import { Branches } from "./branches.tsx"
import { Credentials } from "./credentials.tsx"
import { useEvery } from "./every.ts"
import { Recovery } from "./recovery.tsx"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

export const DatabasePanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project }
  const query = { environment: resource.environment ?? "production" }
  const moment = useEvery(10_000)
  const version = `${moment} ${resource.revision}`
  const shown = useAnswer(`database ${resource.uid}`, () => database.get({ params, query }), version)
  const points = useAnswer(
    `recovery ${resource.uid}`,
    () => databases.listRecoveryPoints({ params: { ...params, databaseId: resource.uid } }),
    version
  )
  const { replicas = [], failover = null, host, port, dbName, user } = shown.value?.body ?? {}
  const recovery = points.value
  return (
    <>
      <Tiles>
        <Tile
          value={
            recovery === undefined || recovery.newestBackupAgeSeconds === null
              ? "–"
              : duration(recovery.newestBackupAgeSeconds * 1_000)
          }
          says="age of the newest backup"
        />
        <Tile
          value={
            recovery === undefined || recovery.lastProvenAt === null ? (
              "not yet"
            ) : (
              <Ago at={recovery.lastProvenAt} />
            )
          }
          says="since a backup was proven by a restore"
        />
        <Tile
          value={recovery === undefined ? "–" : recovery.archiving.ok ? "complete" : "interrupted"}
          says="log that is archived"
          bad={recovery?.archiving.ok === false}
        />
        <Tile
          value={
            replicas.length === 0
              ? "none"
              : `${replicas.filter(({ state }) => state === "streaming").length} of ${replicas.length}`
          }
          says="standbys that follow"
          bad={replicas.some(({ state }) => state === "down")}
        />
      </Tiles>
      {recovery !== undefined && recovery.archiving.message !== null && (
        <p className="mt-2 text-wait wrap-anywhere">{recovery.archiving.message}</p>
      )}
      <Credentials
        by={Database.endpoints.rotatePassword}
        name={resource.name}
        facts={[
          ["Host", host ?? "not yet"],
          ["Port", port ?? "not yet"],
          ["Database", dbName ?? "not yet"],
          ["User", user ?? "not yet"]
        ]}
        rotate={() => database.rotatePassword({ params, query, headers: idempotent() })}
      />
      {replicas.length > 0 && (
        <>
          <h2>Standbys</h2>
          <Panel>
            <Table
              of={replicas}
              keyOf={({ number }) => String(number)}
              empty=""
              columns={[
                { head: "Standby", cell: ({ number }) => number },
                { head: "Read from", look: "code", cell: ({ host, port }) => `${host}:${port ?? "–"}` },
                {
                  head: "State",
                  look: "written",
                  cell: ({ state, problem }) => (
                    <>
                      {states[state]} <span className="text-soft">{problem}</span>
                    </>
                  )
                },
                {
                  head: "Behind",
                  cell: ({ lagSeconds, lagBytes }) =>
                    lagSeconds === null || lagBytes === null
                      ? "not known"
                      : lagSeconds === 0 && lagBytes === 0
                        ? "less than 10 s and 1 MiB"
                        : `at most ${duration(Math.max(10, lagSeconds) * 1_000)}, ${bytes(Math.max(1_048_576, lagBytes))}`
                }
              ]}
            />
          </Panel>
        </>
      )}
      {failover !== null && (
        <p className="mt-2 text-soft">
          Standby {failover.replica} took the primary's place: <At at={failover.at} />.{" "}
          {failover.lagBytes !== null &&
            failover.lagBytes > 0 &&
            `It lacked at most ${bytes(failover.lagBytes)} of the log.`}
        </p>
      )}
      <h2>Recovery</h2>
      <Answered of={points} what="what can be restored">
        {(found) => <Recovery resource={resource} project={project} points={found} again={points.again} />}
      </Answered>
      <Backups resource={resource} project={project} version={version} changed={points.again} />
      <Branches resource={resource} project={project} version={version} />
    </>
  )
}

const states = {
  copying: "is copied",
  catching_up: "catches up",
  streaming: "follows",
  down: "does not run"
} as const
