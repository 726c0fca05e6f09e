/**
 * How a managed server begins: a shell writes its own number into the server's control groups and says how early the
 * kernel may end it, and then becomes the server, as the server's user. So no process of the server is ever outside.
 */
/** The system user that managed servers run as. */
export interface RunAs {
  readonly name: string
  readonly uid: number
  readonly gid: number
}

export interface Launch {
  readonly command: string
  readonly args: ReadonlyArray<string>
  /** Files that a process writes its number to, to be in a group. */
  readonly joins?: ReadonlyArray<string>
  readonly oomScore?: number
}

/** What is to be run instead, and as whom. Nothing in it is a secret: it can be read while the shell runs. */
export const launched = (
  { command, args, joins = [], oomScore }: Launch,
  runAs: RunAs | undefined,
  /** The program that changes users (setpriv(1)). */
  setpriv: string | undefined
): {
  readonly command: string
  readonly args: ReadonlyArray<string>
  readonly identity: { readonly uid?: number; readonly gid?: number }
} => {
  const identity = runAs === undefined ? {} : { uid: runAs.uid, gid: runAs.gid }
  if (process.platform !== "linux" || (joins.length === 0 && oomScore === undefined))
    return { command, args, identity }
  // The groups, and low scores, are root's to give.
  const first = runAs !== undefined && setpriv !== undefined ? setpriv : undefined
  const user =
    first === undefined || runAs === undefined
      ? []
      : [first, `--reuid=${runAs.uid}`, `--regid=${runAs.gid}`, "--clear-groups", "--"]
  return {
    command: "/bin/sh",
    args: ["-c", script, "sh", oomScore ?? "", ...joins, "--", ...user, command, ...args].map(String),
    identity: first === undefined ? identity : {}
  }
}

/** A server that cannot be in its group is started all the same: the next look finds it outside and takes it in. */
const script = `
{ [ -z "$1" ] || echo "$1" > /proc/self/oom_score_adj; } 2>/dev/null
shift
while [ "$1" != -- ]; do
  { echo $$ > "$1"; } 2>/dev/null || echo "svc: could not join the control group $1" >&2
  shift
done
shift
exec "$@"`
