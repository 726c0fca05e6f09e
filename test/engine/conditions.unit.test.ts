import * as fs from "node:fs"
import { assert, it } from "@effect/vitest"
import { engineReasons } from "#schemas/condition.ts"
import { Database } from "#schemas/database.ts"
import { Execution } from "#schemas/execution.ts"
import { kinds } from "#schemas/index.ts"
import { eventType } from "#src/engine/conditions.ts"

const unready = (reason: string) => ({
  type: "Ready" as const,
  status: "false" as const,
  reason,
  message: "",
  lastTransitionAt: "",
  observedGeneration: 1
})

it("what a kind does on its normal way is no warning, and what it cannot do is one", () => {
  assert.strictEqual(eventType(Execution, unready("ExecutionRunning")), "Normal")
  assert.strictEqual(eventType(Execution, unready("ImagePulling")), "Normal")
  assert.strictEqual(eventType(Execution, unready("EngineUnreachable")), "Warning")
  assert.strictEqual(eventType(Database, unready("Recovering")), "Normal")
  assert.strictEqual(eventType(Database, unready("DataLost")), "Warning")
  assert.strictEqual(eventType(Database, unready("WaitingForDependency")), "Normal")
  assert.strictEqual(eventType(Database, unready("ReconcileFailed")), "Warning")
  assert.strictEqual(eventType(Database, unready("NobodyDeclaredThis")), "Warning")
})

it("every reason that a reconciler gives is declared by a kind or by the engine", () => {
  const declared = new Set([engineReasons, ...kinds.map(({ reasons }) => reasons)].flatMap(Object.keys))
  const folder = new URL("../../reconcilers/", import.meta.url)
  const files = fs.readdirSync(folder, { recursive: true, encoding: "utf8" })
  const given = files
    .filter((file) => file.endsWith(".ts"))
    .flatMap((file) =>
      // A reason, or the two of a choice.
      [
        ...fs
          .readFileSync(new URL(file, folder), "utf8")
          .matchAll(/\breason:[^"\n,}]*"([A-Z]\w+)"(?:[^"\n,}]*"([A-Z]\w+)")?/g)
      ].flatMap(([, one, other]) => [one, other].filter((reason) => reason !== undefined))
    )
  assert.isAbove(given.length, 20)
  assert.deepStrictEqual(
    given.filter((reason) => !declared.has(reason)),
    []
  )
})
