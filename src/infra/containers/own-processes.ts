/**
 * The processes of a program that was started in a container which has other ones too: it, and all that came of it.
 * Engines know the first one only. What came of it is told by a mark among its variables, which a child has from its
 * parent; by the session that the first one leads (runc and crun make it the leader of one); and by who started whom. A
 * child would have to throw away all three at once, after its parent has ended, to be taken for the container's.
 */
import * as fs from "node:fs"

export interface Sought {
  readonly containerId: string
  /** `NAME=value`, as it stands among the variables. */
  readonly mark: string
  /** The first process of the program, as this machine numbers it; it may have ended. Undefined: not known. */
  readonly first: number | undefined
}

interface Process {
  readonly pid: number
  readonly parent: number
  readonly session: number
  /** A number may be another process's later; number and time never are. */
  readonly startedAt: string
}

/** Field numbers as in proc(5), `/proc/pid/stat`; the name before them may hold anything. Undefined: it has ended. */
const statOf = (pid: number): Process | undefined => {
  const text = fs.readFileSync(`/proc/${pid}/stat`, "latin1")
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ")
  const field = (number: number) => fields[number - 3] ?? ""
  // Z and X: only its number is left, until its parent asks for it.
  if (/^[ZX]/.test(field(3))) return undefined
  return { pid, parent: Number(field(4)), session: Number(field(6)), startedAt: field(22) }
}

/** Of these containers. One that watches a container has its id in the name of its group as well, and none of its processes' marks. */
const processesIn = (
  containerIds: ReadonlySet<string>
): ReadonlyArray<Process & { readonly containerId: string }> =>
  fs.readdirSync("/proc").flatMap((name) => {
    const pid = Number(name)
    if (!Number.isInteger(pid) || pid <= 1) return []
    try {
      const ids = fs.readFileSync(`/proc/${pid}/cgroup`, "utf8").match(/[0-9a-f]{64}/g) ?? []
      const containerId = ids.find((id) => containerIds.has(id))
      const process = containerId === undefined ? undefined : statOf(pid)
      return process === undefined || containerId === undefined ? [] : [{ ...process, containerId }]
    } catch {
      // It has just ended.
      return []
    }
  })

/** `NAME=value` of each variable that it began with; none: it has ended. */
const variablesOf = (pid: number): ReadonlyArray<string> => {
  try {
    return fs.readFileSync(`/proc/${pid}/environ`, "latin1").split("\0")
  } catch {
    return []
  }
}

/** The variables that tell of a program which it is, and, in milliseconds since 1970, when it is to have ended. */
export const marks = { id: "SVC_EXEC_ID", endsBy: "SVC_EXEC_ENDS_BY" } as const

/** Programs in these containers that were to have ended before `now`, by their marks. */
export const findOverdue = (containerIds: ReadonlySet<string>, now: number): ReadonlyArray<Sought> => {
  const found = new Map<string, Sought>()
  for (const { pid, session, containerId } of processesIn(containerIds)) {
    const variables = variablesOf(pid)
    const mark = variables.find((one) => one.startsWith(`${marks.id}=`))
    const endsBy = variables.find((one) => one.startsWith(`${marks.endsBy}=`))?.split("=")[1]
    if (mark === undefined || !(Number(endsBy) < now)) continue
    const first = pid === session ? pid : found.get(mark)?.first
    found.set(mark, { containerId, mark, first })
  }
  return [...found.values()]
}

const keyOf = ({ pid, startedAt }: Process): string => `${pid} ${startedAt}`

/** Looks again with each call, and remembers what it has found: whose parent has ended since is still known. */
export const makeOwnProcesses = ({ containerId, mark, first }: Sought): (() => ReadonlyArray<number>) => {
  const known = new Set<string>()
  const containerIds = new Set([containerId])
  return () => {
    const all = processesIn(containerIds)
    const own = new Set<number>()
    for (const process of all) {
      const { pid, session } = process
      if (
        known.has(keyOf(process)) ||
        (first !== undefined && (pid === first || session === first)) ||
        variablesOf(pid).includes(mark)
      )
        own.add(pid)
    }
    for (let before = -1; before !== own.size; ) {
      before = own.size
      for (const { pid, parent } of all) if (own.has(parent)) own.add(pid)
    }
    for (const process of all) if (own.has(process.pid)) known.add(keyOf(process))
    return [...own]
  }
}
