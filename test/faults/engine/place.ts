/**
 * The world outside of the engine processes of these tests: things with a size, kept in a file that all processes share.
 * It writes down every call in the order in which the calls happened, and, like a far end that we own, it may refuse
 * whoever carries a lower fence than somebody before.
 */
import { DatabaseSync } from "node:sqlite"

export interface Line {
  readonly process: string
  readonly uid: string
  /** Fencing number of the run that made the call. */
  readonly fence: number
  readonly call: "observe" | "converge" | "remove"
  readonly what: "begins" | "ends" | "writes" | "is refused"
  /** By the clock of the process, in milliseconds since 1970. */
  readonly at: number
}

export interface Place {
  readonly note: (line: Omit<Line, "at">) => void
  readonly size: (uid: string) => number | undefined
  /** Null takes it away. False: somebody newer was here. */
  readonly write: (uid: string, fence: number, size: number | null) => boolean
  /** Everything that happened, in order; or only to one thing. */
  readonly lines: (uid?: string) => ReadonlyArray<Line>
  readonly sizes: () => ReadonlyMap<string, number>
  readonly close: () => void
}

export const openPlace = (file: string, fenced: boolean): Place => {
  const db = new DatabaseSync(file, { timeout: 20_000 })
  db.exec(`
    pragma journal_mode = wal;
    pragma synchronous = off;
    create table if not exists thing (uid text primary key, size integer, fence integer not null) strict;
    create table if not exists line (
      id integer primary key, process text not null, uid text not null, fence integer not null,
      call text not null, what text not null, at integer not null) strict;
    create index if not exists line_uid on line (uid, id)`)
  const insert = db.prepare(
    "insert into line (process, uid, fence, call, what, at) values (?, ?, ?, ?, ?, ?)"
  )
  const find = db.prepare("select size from thing where uid = ? and size is not null")
  const put = db.prepare(`
    insert into thing (uid, size, fence) values (?, ?, ?)
    on conflict (uid) do update set size = excluded.size, fence = excluded.fence
    where excluded.fence >= thing.fence or ?`)
  const columns = "process, uid, fence, call, what, at"
  return {
    note: ({ process, uid, fence, call, what }) =>
      void insert.run(process, uid, fence, call, what, Date.now()),
    size: (uid) => {
      const row = find.get(uid)
      return row === undefined ? undefined : Number(row["size"])
    },
    write: (uid, fence, size) => put.run(uid, size, fence, fenced ? 0 : 1).changes === 1,
    lines: (uid) => {
      const rows =
        uid === undefined
          ? db.prepare(`select ${columns} from line order by id`).all()
          : db.prepare(`select ${columns} from line where uid = ? order by id`).all(uid)
      return rows as unknown as ReadonlyArray<Line>
    },
    sizes: () =>
      new Map(
        db
          .prepare("select uid, size from thing where size is not null")
          .all()
          .map((row) => [String(row["uid"]), Number(row["size"])])
      ),
    close: () => db.close()
  }
}
