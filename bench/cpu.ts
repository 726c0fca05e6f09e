/** What processes have used of the processors. */
import * as fs from "node:fs"
import type postgres from "postgres"

/** CPU seconds that a process has used. */
export const cpuOf = (pid: number | string): number => {
  try {
    const fields = fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
    return (Number(fields[11]) + Number(fields[12])) / 100
  } catch {
    return 0
  }
}
/** CPU seconds of a database server and its connections. */
export const cpuBelow = (parent: number): number =>
  cpuOf(parent) +
  fs
    .readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8")
    .split(" ")
    .filter((pid) => pid !== "")
    .reduce((sum, pid) => sum + cpuOf(pid), 0)

/** The process id of the database server. */
export const postmasterOf = async (sql: postgres.Sql): Promise<number> => {
  const [backend] = await sql<[{ pid: number }]>`select pg_backend_pid() as pid`
  return Number(/PPid:\s+(\d+)/.exec(fs.readFileSync(`/proc/${backend.pid}/status`, "utf8"))?.[1])
}
