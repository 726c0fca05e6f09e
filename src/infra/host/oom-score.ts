/** How early the kernel ends a process when the machine has no memory left (proc_pid_oom_score_adj(5)). */
import * as fs from "node:fs"

/** Only a privileged process may lower the score of one; where this one may not, it stays as it is. */
export const endedAs = (score: number, pid: number | "self"): boolean => {
  if (process.platform !== "linux") return false
  try {
    fs.writeFileSync(`/proc/${pid}/oom_score_adj`, String(score))
    return true
  } catch {
    return false
  }
}
