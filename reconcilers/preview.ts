/**
 * A preview's environment stands below the preview itself, with everything that is in it: deleting the preview deletes all
 * of it. What this keeps true besides: it has its environment; it has a copy of a database where one is wanted and what runs
 * there may see it; branches that were made for it elsewhere go with it if they say so; and it ends when its time is over.
 */
import { randomUUIDv7 } from "node:crypto"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { DatabaseSpec } from "#schemas/database.ts"
import { DatabaseBranch, DatabaseBranchSpec, manifestBranch } from "#schemas/database-branch.ts"
import { Deployment, DeploymentSpec } from "#schemas/deployment.ts"
import { Environment, EnvironmentStatus } from "#schemas/environment.ts"
import { defaultEnvironment, previewSlug } from "#schemas/names.ts"
import {
  isTrusted,
  Preview,
  PreviewDatabase,
  type PreviewSpec,
  type PreviewStatus,
  previewBranch
} from "#schemas/preview.ts"
import { ProjectSpec } from "#schemas/project.ts"
import { billingInactive, makeBillingActive } from "#src/access/billing.ts"
import { AppConfig } from "#src/config.ts"
import { CommitSources } from "#src/deployments/CommitSources.ts"
import { ensureApp, makeDeployment } from "#src/deployments/make-deployment.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register, Terminal } from "#src/engine/Reconciler.ts"
import type { Change } from "#src/store/change.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor, ResourceRecord } from "#src/store/records.ts"

type PreviewResource = Resource<PreviewSpec, PreviewStatus>

const actorOf = (operation: string): Actor => ({
  ...{ principal: "system", credential: "none", operation, requestId: operation },
  ...{ address: null, outcome: 202 }
})

const retryable = <A, E extends { readonly message?: string; readonly _tag: string }>(
  self: Effect.Effect<A, E>
) =>
  Effect.mapError(
    self,
    (error) => new Retryable({ message: error.message || `The preview could not be changed (${error._tag})` })
  )
const decodeBranch = Schema.decodeUnknownOption(DatabaseBranchSpec)
const decodeDatabase = Schema.decodeUnknownOption(DatabaseSpec)
const decodeProject = Schema.decodeUnknownOption(ProjectSpec)
const decodeDeployment = Schema.decodeUnknownOption(DeploymentSpec)
const commitOf = (spec: unknown) => {
  const source = Option.getOrUndefined(decodeDeployment(spec))?.source
  return source?.kind === "git" ? source.commit : undefined
}
const decodeAddress = Schema.decodeUnknownOption(EnvironmentStatus)
const living = ({ deletionRequestedAt }: ResourceRecord) => deletionRequestedAt === null

export const layer = register(
  Preview,
  { driftInterval: "10 minutes", concurrency: 32 },
  Effect.gen(function* () {
    const resources = yield* Resources
    const commits = yield* CommitSources
    const { region } = yield* AppConfig
    const billingActive = yield* makeBillingActive
    const read = <A, E extends { readonly message?: string; readonly _tag: string }>(
      name: string,
      look: Effect.Effect<A, E>
    ) => retryable(externalCall(`previews.${name}`, "read")(look))
    const write = ({ orgId }: PreviewResource, name: string, changes: ReadonlyArray<Change>) =>
      retryable(
        externalCall(
          `previews.${name}`,
          "write"
        )(resources.write(orgId, changes, actorOf(`previews.${name}`)))
      )

    const branchesOf = ({ orgId, projectId }: PreviewResource) =>
      read("branches", resources.listKind(orgId, DatabaseBranch.name, projectId ?? ""))

    /** Branches of other environments that are to go with it. */
    const bound = (preview: PreviewResource) =>
      Effect.map(branchesOf(preview), (records) =>
        records.filter(({ spec, environment }) => {
          const branch = Option.getOrUndefined(decodeBranch(spec))
          return (
            branch?.previewId === preview.uid &&
            branch.deleteOnPreviewClose &&
            environment !== previewSlug(preview.spec.pullRequest)
          )
        })
      )

    /** The database to copy: what the preview says, and else what the project's own branch says. */
    const wantedDatabase = (preview: PreviewResource, branches: ReadonlyArray<ResourceRecord>) => {
      const { database } = preview.spec
      if (database !== undefined) return database
      const own = branches.find(
        (one) =>
          living(one) && one.environment === manifestBranch.environment && one.name === manifestBranch.name
      )
      const spec = Option.getOrUndefined(decodeBranch(own?.spec))
      return spec === undefined ? null : Schema.decodeUnknownSync(PreviewDatabase)(copied(spec))
    }

    const survey = Effect.fnUntraced(function* (preview: PreviewResource) {
      const { orgId, projectId, spec } = preview
      const slug = previewSlug(spec.pullRequest)
      const found = yield* read("environment", resources.find(orgId, Environment.name, projectId, null, slug))
      const environment = Option.getOrUndefined(found)
      const branches = yield* branchesOf(preview)
      const branch = branches.find(
        (one) => living(one) && one.environment === slug && one.name === previewBranch
      )
      const isAnothers = environment !== undefined && environment.parentUid !== preview.uid
      const isTaken = isAnothers && living(environment)
      // That of a preview of the same pull request that was closed a moment ago.
      const isLeaving = isAnothers && !living(environment)
      const deployments = spec.followed
        ? yield* read("deployments", resources.listKind(orgId, Deployment.name, projectId ?? "", slug))
        : []
      const deployment = deployments.find((one) => living(one) && commitOf(one.spec) === spec.commit)
      const isUnpaid =
        spec.followed && deployment === undefined && !(yield* read("billing", billingActive(orgId)))
      const base = { slug, environment, branch, deployment, isTaken, isLeaving, isUnpaid }
      const wanted = wantedDatabase(preview, branches)
      if (wanted === null || !isTrusted(spec)) return { ...base, source: undefined, trouble: undefined }
      const source = yield* read(
        "source",
        resources.find(orgId, "Database", projectId, wanted.sourceEnvironment, wanted.sourceDatabase)
      )
      const database = Option.getOrUndefined(Option.filter(source, living))
      const place = Option.getOrUndefined(decodeDatabase(database?.spec))
      if (database === undefined || place === undefined)
        return {
          ...base,
          source: undefined,
          trouble: {
            reason: "SourceMissing",
            message: `There is no database "${wanted.sourceDatabase}" in "${wanted.sourceEnvironment}" to copy`
          }
        }
      const project = yield* read("project", resources.get(orgId, projectId ?? ""))
      const allowed =
        wanted.sourceEnvironment !== defaultEnvironment ||
        Option.getOrUndefined(Option.flatMap(project, ({ spec: stored }) => decodeProject(stored)))
          ?.previewData === "allowed"
      return allowed
        ? { ...base, source: { ...wanted, id: database.uid, region: place.region }, trouble: undefined }
        : {
            ...base,
            source: undefined,
            trouble: {
              reason: "PreviewDataForbidden",
              message: "The project does not allow copies of production data in previews (previewData)"
            }
          }
    })
    type Survey = Effect.Success<ReturnType<typeof survey>>

    const differencesOf = (
      preview: PreviewResource,
      { environment, branch, source, deployment, isUnpaid }: Survey,
      now: number
    ) => {
      if (isOver(preview.spec, now)) return [{ field: "/expiresAt", message: "its time is over" }]
      if (environment === undefined) return [{ field: "/environment", message: "it has no environment yet" }]
      if (!living(environment)) return []
      if (branch === undefined && source !== undefined)
        return [{ field: "/database", message: "it has no copy of the database yet" }]
      if (branch !== undefined && !isTrusted(preview.spec))
        return [{ field: "/database", message: "its commit is not approved, and it has data" }]
      return preview.spec.followed && deployment === undefined && !isUnpaid
        ? [{ field: "/commit", message: "its commit is not deployed yet" }]
        : []
    }

    const deploy = Effect.fnUntraced(function* (preview: PreviewResource, environment: ResourceRecord) {
      const { orgId, projectId, spec } = preview
      const project = yield* read("project", resources.get(orgId, projectId ?? ""))
      const { git } = Option.getOrUndefined(Option.flatMap(project, (one) => decodeProject(one.spec))) ?? {}
      // Its repository was taken away a moment ago: whoever follows it says so next.
      if (git === undefined || projectId === null) return
      const source = yield* externalCall(
        "previews.resolve",
        "read"
      )(commits.resolve(orgId, { repo: git.repo, ref: spec.commit })).pipe(
        Effect.mapError(({ message }) => new Retryable({ reason: "SourceUnavailable", message }))
      )
      // The project has another repository by now, where the number is of another pull request.
      if (source.url.toLowerCase() !== spec.repository?.toLowerCase()) return
      const place = { orgId, projectId, environment: environment.name, environmentUid: environment.uid }
      const actor = actorOf("previews.deploy")
      const ref = `refs/pull/${spec.pullRequest}/head`
      const made = Effect.gen(function* () {
        const app = yield* ensureApp(resources, place, region, actor)
        const message = `#${spec.pullRequest} at ${spec.commit.slice(0, 12)}`
        const from = { ...source, ref, ...(spec.fork ? { fork: true } : {}) }
        const wanted = { region: app.region, source: from, message, cancelRequested: false }
        return yield* makeDeployment(resources, place, { uid: randomUUIDv7(), spec: wanted }, actor)
      })
      yield* retryable(externalCall("previews.deploy", "write")(made))
    })

    const branchChange = (
      { projectId, uid }: PreviewResource,
      { slug, environment }: Pick<Survey, "slug" | "environment">,
      { id, region, expiresInDays, ...source }: NonNullable<Survey["source"]>
    ): Change => ({
      ...{ action: "create", uid: randomUUIDv7(), kind: DatabaseBranch.name, projectId, environment: slug },
      ...{ name: previewBranch, parentUid: environment?.uid ?? null, managedBy: "api" },
      spec: Schema.decodeUnknownSync(DatabaseBranch.spec)({
        ...{ ...source, expiresInDays, region, sourceDatabaseId: id, previewId: uid },
        deleteOnPreviewClose: true
      })
    })

    return {
      observe: Effect.fnUntraced(function* (preview) {
        if (preview.deleting) {
          if ((yield* bound(preview)).length === 0) return absent
          return {
            _tag: "Present" as const,
            status: preview.status ?? nothing,
            ready: false,
            differences: []
          }
        }
        const seen = yield* survey(preview)
        if (seen.isTaken)
          return yield* new Terminal({
            reason: "EnvironmentTaken",
            message: `There is an environment "${seen.slug}" that is not the preview's; delete it, or close the preview`
          })
        if (seen.isLeaving)
          return {
            ...{ _tag: "Present" as const, status: nothing, ready: false, differences: [] },
            ...{
              reason: "Progressing",
              message: "The environment of the preview before it is being deleted"
            },
            pollAfter: "2 seconds"
          }
        const now = yield* Clock.currentTimeMillis
        const differences = differencesOf(preview, seen, now)
        const { environment, branch, trouble } = seen
        const { expiresAt } = preview.spec
        const address = Option.getOrUndefined(decodeAddress(environment?.status))?.address ?? null
        const note = seen.isUnpaid ? unpaid : isTrusted(preview.spec) ? trouble : approvalNeeded
        return {
          _tag: "Present" as const,
          status: {
            environmentId: environment?.uid ?? null,
            address,
            branchId: branch?.uid ?? null,
            deploymentId: seen.deployment?.uid ?? null
          },
          ready: environment !== undefined && living(environment) && differences.length === 0,
          differences,
          ...(note === undefined ? {} : { note }),
          ...(address === null
            ? { pollAfter: "5 seconds" }
            : expiresAt === null
              ? {}
              : { pollAfter: Math.min(600_000, Math.max(1_000, Date.parse(expiresAt) - now)) })
        }
      }),
      converge: Effect.fnUntraced(function* (preview) {
        const { uid, projectId } = preview
        const seen = yield* survey(preview)
        if (seen.isTaken || seen.isLeaving) return
        if (isOver(preview.spec, yield* Clock.currentTimeMillis))
          return yield* Effect.asVoid(write(preview, "expire", [{ action: "delete", uid }]))
        const { slug, environment, branch, source } = seen
        if (environment === undefined)
          return yield* Effect.asVoid(
            write(preview, "environment", [
              {
                ...{ action: "create", uid: randomUUIDv7(), kind: Environment.name, projectId },
                ...{ environment: null, name: slug, parentUid: uid, spec: {}, managedBy: "api" }
              }
            ])
          )
        if (!living(environment)) return
        if (branch !== undefined && !isTrusted(preview.spec))
          return yield* Effect.asVoid(write(preview, "withdraw", [{ action: "delete", uid: branch.uid }]))
        if (branch === undefined && source !== undefined)
          return yield* Effect.asVoid(write(preview, "branch", [branchChange(preview, seen, source)]))
        if (preview.spec.followed && seen.deployment === undefined && !seen.isUnpaid)
          yield* deploy(preview, environment)
      }),
      remove: Effect.fnUntraced(function* (preview) {
        const left = (yield* bound(preview)).filter(living)
        if (left.length > 0)
          yield* write(
            preview,
            "removeBranches",
            left.map(({ uid }) => ({ action: "delete" as const, uid }))
          )
      })
    }
  })
)

const nothing: PreviewStatus = { environmentId: null, address: null, branchId: null, deploymentId: null }

const unpaid = { reason: "BillingInactive", message: billingInactive }

const approvalNeeded = {
  reason: "ApprovalNeeded",
  message: "It is of a fork: it has no secrets and no data until its commit is approved"
}

const isOver = ({ expiresAt }: PreviewSpec, now: number): boolean =>
  expiresAt !== null && Date.parse(expiresAt) <= now

const copied = ({ sourceEnvironment, sourceDatabase, expiresInDays }: DatabaseBranchSpec) => ({
  sourceEnvironment,
  sourceDatabase,
  expiresInDays
})
