/** What is given to what runs in the preview of a pull request, and what is sent to it. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { variableField } from "#schemas/env-variables.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import { EnvironmentServices } from "#src/apps/EnvironmentServices.ts"
import { makePreviewTrust } from "#src/apps/preview-trust.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host } from "#src/infra/host/Host.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { AppServiceTokens } from "#src/projects/AppServiceTokens.ts"
import type { Change } from "#src/store/change.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"

const config = Layer.unwrap(
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
      (dataDir) => Effect.sync(() => fs.rmSync(dataDir, { recursive: true, force: true }))
    ),
    (dataDir) => AppConfig.layerWith({ dataDir })
  )
)
const world = Layer.mergeAll(AppVariables.layer, Invocations.layer).pipe(
  Layer.provideMerge(EnvironmentServices.layer),
  Layer.provideMerge(Layer.mergeAll(Resources.layer, Secrets.layer, AppServiceTokens.layer)),
  Layer.provide([Host.layer, CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))]),
  Layer.provide(config),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

it.effect("a fork's commit that nobody approved is given nothing, and nothing is sent to it", () =>
  Effect.gen(function* () {
    const resources = yield* Resources
    const { id: orgId } = yield* makeOrganization()
    const { projectId } = yield* makeProject(orgId, "shop")
    const variables = (environment: string, values: Readonly<Record<string, string>>): Change => ({
      ...{ action: "create", uid: uuid(), kind: "EnvVariables", projectId, environment, name: "variables" },
      ...{ parentUid: null, managedBy: "api" },
      spec: {
        variables: Object.fromEntries(Object.keys(values).map((key) => [key, "fingerprint"])),
        forBuilds: ["SHARED"]
      },
      secrets: Object.fromEntries(
        Object.entries(values).map(([key, value]) => [variableField(key), Redacted.make(value)])
      )
    })
    const environment = (uid: string, name: string, parentUid: string): Change => ({
      ...{ action: "create", uid, kind: "Environment", projectId, environment: null, name, parentUid },
      ...{ spec: { origin: "https://app.example.test" }, managedBy: "api" }
    })
    const [uid, own, taken, deployment] = [uuid(), uuid(), uuid(), uuid()]
    const [first, second] = ["1".repeat(40), "2".repeat(40)]
    const preview = { pullRequest: 5, commit: first, fork: true, approvedCommit: null as string | null }
    yield* resources.write(
      orgId,
      [
        variables("production", { SECRET: "of production" }),
        variables("preview", { SECRET: "of preview", SHARED: "yes" }),
        {
          ...{ action: "create", uid, kind: "Preview", projectId, environment: null, name: "preview-5" },
          ...{ parentUid: projectId, spec: preview, managedBy: "api" }
        },
        environment(own, "preview-5", uid),
        {
          ...{ action: "create", uid: deployment, kind: "Deployment", projectId, environment: "preview-5" },
          ...{ name: deployment, parentUid: own, managedBy: "api" },
          spec: { region: "local", source: { kind: "git", url: "https://x.test", ref: "x", commit: first } }
        },
        // A user has had it since before there were previews.
        environment(taken, "preview-6", projectId),
        variables("preview-6", { SECRET: "of a user" })
      ],
      actor
    )
    const given = Effect.fnUntraced(function* (name: string, environmentUid: string) {
      const place = { orgId, projectId, environment: name }
      const { env, services } = yield* (yield* AppVariables).of({ ...place, spec: { port: 8080 } })
      const {
        APP_SERVICE_TOKEN: token,
        SVC_SIGNING_SECRET: signing,
        SVC_API_URL: _,
        ...variables
      } = Redacted.value(env)
      assert.strictEqual(signing !== undefined, token !== undefined)
      const environments = yield* EnvironmentServices
      const reached = yield* environments.reachable([{ orgId, environmentUid }])
      assert.deepStrictEqual(reached.get(environmentUid), services)
      const { isWithheld } = yield* (yield* Invocations).target(orgId, environmentUid)
      const building = yield* (yield* AppVariables).forBuild({ ...place, deployment })
      const { SHARED } = variables
      assert.deepStrictEqual(Redacted.value(building), SHARED === undefined ? {} : { SHARED })
      const all = { hasToken: token !== undefined, isReached: services.length > 0, isCalled: !isWithheld }
      return { ...all, variables }
    })
    const ofPreview = given("preview-5", own)
    const change = (spec: typeof preview) => resources.write(orgId, [{ action: "update", uid, spec }], actor)
    const usual = { SVC_ENVIRONMENT: "preview-5", PORT: "8080" }
    const nothing = { hasToken: false, isReached: false, isCalled: false, variables: usual }
    const everything = { hasToken: true, isReached: true, isCalled: true }
    assert.deepStrictEqual(yield* ofPreview, nothing)
    const trust = yield* makePreviewTrust
    assert.strictEqual(yield* trust.packagesOf(orgId, projectId, own), uid)
    assert.strictEqual(yield* trust.packagesOf(orgId, projectId, taken), projectId)
    const called = yield* (yield* Invocations).callable(orgId, own)
    assert.deepStrictEqual([called.origin, called.isWithheld], [undefined, true])

    yield* change({ ...preview, approvedCommit: first })
    const shared = { SECRET: "of preview", SHARED: "yes" }
    assert.deepStrictEqual(yield* ofPreview, { ...everything, variables: { ...usual, ...shared } })
    yield* change({ ...preview, commit: second, approvedCommit: first })
    assert.deepStrictEqual(yield* ofPreview, nothing)
    yield* change({ ...preview, fork: false })
    assert.strictEqual(yield* trust.packagesOf(orgId, projectId, own), projectId)
    yield* resources.write(orgId, [variables("preview-5", { SECRET: "of its own" })], actor)
    assert.deepStrictEqual(yield* ofPreview, {
      ...everything,
      variables: { ...usual, ...shared, SECRET: "of its own" }
    })
    assert.deepStrictEqual(yield* given("preview-6", taken), {
      ...everything,
      variables: { SVC_ENVIRONMENT: "preview-6", PORT: "8080", SECRET: "of a user" }
    })
  }).pipe(Effect.provide(world))
)
