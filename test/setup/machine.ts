/** A machine for managed servers: a temporary folder, and the secrets that a control plane would have sealed. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type { Resource } from "#src/engine/Reconciler.ts"
import { uuid } from "./fixtures.ts"
import { testFolder } from "./folder.ts"
import { type MemorySecrets, memorySecrets } from "./memory-secrets.ts"
import { sweep } from "./processes.ts"

export interface Machine {
  readonly dataDir: string
  readonly secrets: MemorySecrets
}

/** Ends every process that was started in its folder when the scope closes. */
export const machine: Effect.Effect<Machine, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => ({
    dataDir: fs.mkdtempSync(path.join(testFolder(), "svc-test-")),
    secrets: memorySecrets()
  })),
  ({ dataDir }) => Effect.promise(() => sweep(dataDir))
)

/** As it is when it was just asked for, with a password of its own. */
export const makeResource = <Spec>(
  world: Machine,
  made: { readonly kind: string; readonly name: string; readonly environment: string; readonly spec: Spec },
  place: Pick<Resource, "orgId" | "projectId"> = { orgId: uuid(), projectId: uuid() }
): Resource<Spec> => {
  const resource: Resource<Spec> = {
    ...made,
    orgId: place.orgId,
    projectId: place.projectId,
    uid: uuid(),
    parentUid: null,
    generation: 1,
    status: null,
    facts: {},
    deleting: false,
    fence: 0n
  }
  setPassword(world, resource, `first-${uuid()}`)
  return resource
}

type Owner = Pick<Resource, "orgId" | "uid">

export const setPassword = ({ secrets }: Machine, { orgId, uid }: Owner, password: string): void =>
  secrets.write({ orgId, uid, field: "password" }, Redacted.make(password))

export const passwordOf = ({ secrets }: Machine, { orgId, uid }: Owner): string => {
  const password = secrets.read({ orgId, uid, field: "password" })
  if (password === undefined) throw new Error(`${uid} has no password`)
  return Redacted.value(password)
}
