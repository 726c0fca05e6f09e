/**
 * References once a plan is carried out: what entries of the manifest name is there, what is deleted is named by nothing
 * that stays. Comes after all entries are planned: what the plan deletes is known then.
 */
import { findKind } from "#schemas/index.ts"
import type { Manifest } from "#schemas/manifest.ts"
import { missingCode, missingMessage } from "#schemas/missing-reference.ts"
import { depthsOf } from "#schemas/reference-graph.ts"
import type { Path } from "#src/api/source-location.ts"
import { addressOf } from "#src/store/records.ts"
import type { Current } from "./change.ts"
import type { Draft } from "./draft.ts"
import { type Entry, entriesIn, type NamedAddress, namedBy } from "./entries.ts"

/** Resources that are looked at in one step. */
const perStep = 100

/** Blocks the plan where a required reference would lead nowhere; answers how many references lie below each address. */
export function* planReferences(
  draft: Draft,
  manifest: Manifest
): Generator<void, ReadonlyMap<string, number>> {
  const { state, doomed } = draft
  const entries = new Map<string, Entry & { readonly at: Path }>()
  const indexOf = new Map<string, number>()
  for (const [index, project] of (manifest.projects ?? []).entries()) {
    indexOf.set(project.slug, index)
    for (const listed of entriesIn(project).values())
      for (const entry of listed)
        entries.set(entry.address, { ...entry, at: ["projects", index, ...entry.path] })
    yield
  }
  /** The kinds of what stays by uid, and what goes by uid and by address. */
  const staying = new Map<string, string>()
  const going = new Map<string, Current>()
  for (const one of state.living) {
    if (!doomed.has(one.uid)) staying.set(one.uid, one.kind)
    else going.set(one.uid, one).set(addressOf(one), one)
  }
  const stays = ({ reference, target, address }: NamedAddress): boolean => {
    if (address === undefined) return staying.get(target) === reference.kind
    return entries.has(address) || staying.has(state.byAddress.get(address)?.uid ?? "")
  }
  const goes = ({ target, address }: NamedAddress) => going.get(address ?? target)
  const graph = new Map<string, ReadonlyArray<string>>()
  let looked = 0

  for (const entry of entries.values()) {
    if (++looked % perStep === 0) yield
    const named = namedBy(entry.kind, entry)
    if (named.length > 0) graph.set(entry.address, besides(entry.kind.name, named))
    const stored = state.byAddress.get(entry.address)
    const before = stored === undefined ? [] : namedBy(entry.kind, stored)
    for (const one of named) {
      if (!one.reference.required || stays(one)) continue
      const path = [...entry.at, ...one.path]
      const message = missingMessage(one, one.lookedUpIn)
      const same = before.some(
        ({ target, reference }) => target === one.target && reference === one.reference
      )
      // It is so already, and the plan makes it no worse: what was exported can be applied.
      if (same && goes(one) === undefined) draft.warn(path, message)
      else draft.block(path, missingCode(one.reference), message)
    }
  }
  for (const one of state.living) {
    const kind = findKind(one.kind)
    if (kind === undefined || kind.references.length === 0) continue
    if (++looked % perStep === 0) yield
    const address = addressOf(one)
    if (entries.has(address)) continue
    const named = namedBy(kind, one)
    graph.set(address, besides(kind.name, named))
    if (doomed.has(one.uid)) continue
    for (const used of named) {
      const gone = used.reference.required && !stays(used) ? goes(used) : undefined
      if (gone === undefined) continue
      const index = indexOf.get(gone.project ?? "")
      const section = findKind(gone.kind)?.manifest?.section ?? null
      const path = [
        "projects",
        ...(index === undefined ? [] : [index, ...(section === null ? [] : [section])])
      ]
      const message = `${addressOf(gone)} would be deleted, and ${address} names it in ${used.path.join(".")}`
      draft.block(path, "in_use", message)
    }
  }
  yield
  return depthsOf(graph)
}

/** What orders resources of one kind. Between kinds the order is that of the kinds. */
const besides = (kind: string, named: ReadonlyArray<NamedAddress>): ReadonlyArray<string> =>
  named.flatMap(({ reference, address }) => (reference.kind === kind ? (address ?? []) : []))
