/** Where the parts of a managed Postgres server are, by its uid. */
import * as path from "node:path"

export const serverFolders = (dataDir: string) => {
  const dirOf = (uid: string) => path.join(dataDir, "databases", uid)
  return {
    dirOf,
    dataOf: (uid: string) => path.join(dirOf(uid), "data"),
    confOf: (uid: string) => path.join(dirOf(uid), "conf"),
    /**
     * Finished segments of the log that wait to be backed up. When another data folder takes the place of the
     * server's, the segments of the two histories must not mix: the new one gets a folder of its own.
     */
    spoolOf: (uid: string, lineage: string) =>
      path.join(dirOf(uid), lineage === uid ? "archive" : `archive-${lineage}`)
  }
}
export type ServerFolders = ReturnType<typeof serverFolders>
