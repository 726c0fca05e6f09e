/** The shared suite on a real container engine. */
import { afterAll, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as execution from "#reconcilers/execution/execution.ts"
import type { ExecutionSpec } from "#schemas/execution.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import * as environments from "#src/apps/services.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { Catalog } from "#src/catalog/Catalog.ts"
import { AppConfig } from "#src/config.ts"
import { Deployments } from "#src/deployments/Deployments.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { Logs } from "#src/executions/Logs.ts"
import { Runs } from "#src/executions/Runs.ts"
import * as services from "#src/executions/services.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host } from "#src/infra/host/Host.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { containerEngine, sh } from "#test/setup/containers.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { crashes, reconcilerSuite, type Subject } from "./suite.ts"

// Worlds share it: nothing looks at containers of others.
const engineScope = Scope.makeUnsafe()
const sharedEngine = Effect.runSync(Effect.cached(Scope.provide(containerEngine, engineScope)))
afterAll(() => Effect.runPromise(Scope.close(engineScope, Exit.void)))

const world = Effect.gen(function* () {
  const engine = yield* sharedEngine
  const context = yield* Layer.build(
    Resources.layer.pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))
  )
  return yield* Effect.gen(function* () {
    const { id: orgId } = yield* makeOrganization()
    const { projectId } = yield* makeProject(orgId, "shop")
    const [db, ring] = [Context.get(context, Db), Context.get(context, KeyRing)]
    return { db, ring, orgId, projectId, engine, secrets: memorySecrets() }
  }).pipe(Effect.provide(context))
})
type World = Effect.Success<typeof world>

const containers = ({ engine }: World, uid: string) =>
  engine
    .podman("ps", "-a", "--filter", `label=svc.execution=${uid}`, "--format", "{{.Names}}")
    .split("\n")
    .filter((name) => name !== "")

const subject: Subject<World, ExecutionSpec, unknown> = {
  name: "an execution",
  kind: "Execution",
  world,
  layer: ({ db, ring, engine, secrets }) =>
    execution.layer.pipe(
      Layer.provide(services.layer),
      Layer.provide(Budgets.layer),
      Layer.provide(Catalog.layerBuiltIn),
      Layer.provide([Deployments.layer, AppVariables.layer.pipe(Layer.provide(Resources.layer))]),
      Layer.provide(environments.layer),
      Layer.provide(Layer.succeed(KeyRing, ring)),
      Layer.provide(CertificateAuthority.layer),
      Layer.provide(Host.layer),
      Layer.provide(AppConfig.layerWith({ dataDir: engine.folder, containerSocket: engine.socket })),
      Layer.provide(secrets.layer),
      Layer.provide(Layer.succeed(Db, db)),
      Layer.provideMerge(Registry.layer)
    ),
  makeResource: (world) =>
    Effect.succeed({
      orgId: world.orgId,
      uid: uuid(),
      kind: "Execution",
      projectId: world.projectId,
      environment: null,
      name: "one",
      parentUid: world.projectId,
      spec: {
        image: world.engine.openImage,
        // Long enough that it is mostly seen running.
        command: sh("echo out; echo err >&2; /bin/busybox sleep 0.8; exit 3"),
        region: "local",
        resources: { cpuKind: "shared", cpus: 0.5, memoryMb: 64 },
        runtime: { nestedContainers: false },
        timeoutSeconds: 600,
        services: true,
        cancelRequested: false
      },
      generation: 1,
      status: null,
      facts: {},
      deleting: false,
      fence: 1n
    }),
  snapshot: (world, { orgId, uid }) =>
    Effect.gen(function* () {
      const run = Option.getOrThrow(yield* (yield* Runs).find({ orgId, uid }))
      // Otherwise all could have failed alike.
      if (run.finishedAt !== null && run.exitCode !== 3) return yield* Effect.die(new Error(run.error ?? ""))
      const { pieces } = yield* (yield* Logs).read({ orgId, uid }, "0", 100)
      return {
        status: run.status,
        exitCode: run.exitCode,
        digest: run.imageDigest,
        cleanup: run.cleanupStatus,
        printed: pieces.map(({ stream, content }) => `${stream}: ${Buffer.from(content)}`).sort(),
        containers: containers(world, uid)
      }
    }).pipe(Effect.provide([Runs.layer, Logs.layer]), Effect.provideService(Db, world.db)),
  remains: (world, { uid }) =>
    Effect.gen(function* () {
      const rows = yield* world.db.engine<{ readonly what: string }>`
        select 'run' as what from execution where uid = ${uid}::uuid
        union all select 'log' from execution_log where execution_uid = ${uid}::uuid`
      return [...rows.map(({ what }) => what), ...containers(world, uid)]
    }),
  changes: [],
  drifts: [],
  settleMs: 180_000,
  timeoutMs: 900_000,
  varies: true,
  costly: true
}

reconcilerSuite(subject)

campaign(
  it.live,
  "execution-crashes",
  "control planes that die again and again while an execution is made and removed end where one would have",
  { rounds: 0 },
  crashes(subject)
)
