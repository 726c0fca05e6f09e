/** Which variables the app of a preview is given. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { variableField } from "#schemas/env-variables.ts"
import { AppVariables } from "#src/apps/AppVariables.ts"
import { EnvironmentServices } from "#src/apps/EnvironmentServices.ts"
import type { Change } from "#src/store/change.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const services = Layer.mock(EnvironmentServices, {
  provide: () =>
    Effect.succeedSome({
      environmentUid: uuid(),
      services: [],
      variables: Redacted.make({ SVC_ENVIRONMENT: "preview-5", DATABASE_URL: "postgres://of the copy" }),
      files: {}
    })
})
const world = AppVariables.layer.pipe(
  Layer.provide(services),
  Layer.provideMerge(Layer.mergeAll(Resources.layer, Secrets.layer)),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

it.effect("a preview has those of `preview` and its own, and a fork's commit none that nobody approved", () =>
  Effect.gen(function* () {
    const resources = yield* Resources
    const { id: orgId } = yield* makeOrganization()
    const { projectId } = yield* makeProject(orgId, "shop")
    const variables = (environment: string, values: Readonly<Record<string, string>>): Change => ({
      ...{ action: "create", uid: uuid(), kind: "EnvVariables", projectId, environment, name: "variables" },
      ...{ parentUid: null, managedBy: "api" },
      spec: { variables: Object.fromEntries(Object.keys(values).map((key) => [key, "fingerprint"])) },
      secrets: Object.fromEntries(
        Object.entries(values).map(([key, value]) => [variableField(key), Redacted.make(value)])
      )
    })
    const uid = uuid()
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
        }
      ],
      actor
    )
    const data = { DATABASE_URL: "postgres://of the copy" }
    const given = Effect.gen(function* () {
      const place = { orgId, projectId, environment: "preview-5", spec: { port: 8080 } }
      const { env } = yield* (yield* AppVariables).of(place)
      const { PORT: _, SVC_ENVIRONMENT: __, ...own } = Redacted.value(env)
      return own
    })
    const change = (spec: typeof preview) => resources.write(orgId, [{ action: "update", uid, spec }], actor)
    assert.deepStrictEqual(yield* given, {})
    yield* change({ ...preview, approvedCommit: first })
    assert.deepStrictEqual(yield* given, { ...data, SECRET: "of preview", SHARED: "yes" })
    yield* change({ ...preview, commit: second, approvedCommit: first })
    assert.deepStrictEqual(yield* given, {})
    yield* change({ ...preview, fork: false })
    yield* resources.write(orgId, [variables("preview-5", { SECRET: "of its own" })], actor)
    assert.deepStrictEqual(yield* given, { ...data, SECRET: "of its own", SHARED: "yes" })
  }).pipe(Effect.provide(world))
)
