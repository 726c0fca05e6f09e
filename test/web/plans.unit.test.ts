/** A plan as the dashboard shows it. */
import { assert, it } from "@effect/vitest"
import { type Change, groupsOf, linesOfPatch, type Plan } from "../../web/src/pages/plan-groups.ts"

const change = (address: string, action: Change["action"], more: Partial<Change> = {}): Change => ({
  address,
  kind: "Cache",
  project: "shop",
  environment: "production",
  name: address,
  action,
  risk: "write",
  patch: [],
  reasons: [],
  requires: { role: "admin", billing: false },
  ...more
})
const plan = (changes: ReadonlyArray<Change>): Plan => ({
  planId: "1",
  organization: "main",
  baseRevision: "1",
  createdAt: "2026-01-01T00:00:00.000Z",
  expiresAt: "2026-01-02T00:00:00.000Z",
  summary: { create: 0, update: 0, replace: 0, delete: 0, noop: 0, drift: 0 },
  changes,
  drift: [],
  blockers: [],
  warnings: []
})

it("says deletions first, and within a group the most dangerous; what stays is apart", () => {
  const kept = change("kept", "delete", { reasons: [{ code: "needs_prune", message: "not named" }] })
  const groups = groupsOf(
    plan([
      change("new", "create"),
      change("same", "noop"),
      change("gone", "delete", { risk: "destructive" }),
      kept,
      change("lost", "delete", { risk: "dangerous" })
    ])
  )
  assert.deepStrictEqual(
    groups.map(({ title, changes }) => [title, ...changes.map(({ address }) => address)]),
    [
      ["Deletes", "lost", "gone"],
      ["Creates", "new"],
      ["Kept, though the manifest does not name it", "kept"]
    ]
  )
})

it("shows what a field was beside what it becomes", () => {
  assert.deepStrictEqual(
    linesOfPatch([
      { op: "test", path: "/backup/pitrDays", value: 7 },
      { op: "replace", path: "/backup/pitrDays", value: 14 },
      { op: "add", path: "/name", value: "x" },
      { op: "test", path: "/old", value: "y" },
      { op: "remove", path: "/old" }
    ]).map(({ sign, text }) => `${sign} ${text}`),
    ["- backup.pitrDays: 7", "+ backup.pitrDays: 14", "+ name: x", "- old: y"]
  )
})
