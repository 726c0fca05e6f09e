/** What is in a commit, as `git ls-tree -z` prints it. */

export interface TreeEntry {
  readonly mode: string
  readonly kind: "blob" | "commit"
  readonly object: string
  /** Of a blob, if they were asked for (`-l`). */
  readonly bytes: number
  /** Raw: a path need not be text. */
  readonly path: Buffer
}

const head = /^(\d{6}) (blob|commit) ([0-9a-f]{40,64})(?: +(\d+|-))?$/

/** Undefined: that is no list of entries. */
export const parseTree = (listed: Buffer): ReadonlyArray<TreeEntry> | undefined => {
  const entries: Array<TreeEntry> = []
  for (let from = 0; from < listed.length; ) {
    const to = listed.indexOf(0, from)
    const tab = listed.indexOf(9, from)
    if (to === -1 || tab === -1 || tab > to) return undefined
    const [, mode, kind, object, bytes] = head.exec(listed.toString("latin1", from, tab)) ?? []
    if (mode === undefined || object === undefined || (kind !== "blob" && kind !== "commit")) return undefined
    entries.push({
      mode,
      kind,
      object,
      bytes: bytes === undefined || bytes === "-" ? 0 : Number(bytes),
      path: listed.subarray(tab + 1, to)
    })
    from = to + 1
  }
  return entries
}

/** What `git config -z --list` prints of `.gitmodules`: where the submodule at each path is. */
export const parseModules = (listed: string): ReadonlyMap<string, string> => {
  const sections = new Map<string, { path?: string; url?: string }>()
  for (const line of listed.split("\0")) {
    const [, name, key, value] = /^submodule\.([^\n]*)\.(path|url)\n([^\n]*)$/.exec(line) ?? []
    if (name === undefined || value === undefined || (key !== "path" && key !== "url")) continue
    sections.set(name, { ...sections.get(name), [key]: value })
  }
  return new Map(
    [...sections.values()].flatMap(({ path, url }) =>
      path === undefined || url === undefined ? [] : [[path, url] as const]
    )
  )
}
