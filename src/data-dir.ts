/** Where the data of a control plane is when nobody said where. */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"

const usual = ".svc"

/** Whether everybody may walk into a folder. */
const isOpen = (folder: string): boolean => {
  for (let at = folder; ; at = path.dirname(at)) {
    if ((fs.statSync(at).mode & 0o001) === 0) return false
    if (at === path.dirname(at)) return true
  }
}

/**
 * `.svc` in the working folder. A control plane that runs as root below a folder that is root's alone (such as its
 * home) cannot use that: its servers run as somebody else, who may not walk there. Then it is a folder of its own
 * below /var/lib/svc, one for each working folder.
 */
export const defaultDataDir = (folder: string = process.cwd()): string => {
  if (process.getuid?.() !== 0 || isOpen(folder)) return path.join(folder, usual)
  return path.join("/var/lib/svc", createHash("sha256").update(folder).digest("hex").slice(0, 12))
}
