/** Connecting an account, changing how, and disconnecting it. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import {
  CustomerPayments,
  type CustomerPaymentsSpec,
  customerPaymentsName,
  paymentCredentialField
} from "#schemas/customer-payments.ts"
import { answer } from "#src/api/answer.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { fromStore, notFound, problem } from "#src/api/problem.ts"
import { targetEnvironment } from "#src/api/target.ts"
import type { Change } from "#src/store/change.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { Resources } from "#src/store/Resources.ts"
import { type Connection, Connections, refusalText } from "./Connections.ts"
import { checkKey, type KeyRefused } from "./check-key.ts"
import { removeEndpoint } from "./endpoint.ts"
import { Processor } from "./Processor.ts"
import { Projections } from "./Projections.ts"
import { notConfigured } from "./Requests.ts"
import { listPaths } from "./scopes.ts"
import { configView } from "./view.ts"
import { PaymentsConfig } from "./views.ts"

type Wanted = Pick<CustomerPaymentsSpec, "credentialScopes" | "allowedRedirectOrigins">
interface Given {
  readonly secretKey: string | undefined
  readonly webhookSecret: string | undefined
}

/** For taking the endpoint away at Stripe, while somebody waits. */
const longestFarewell = "10 seconds"
/** Below that of every reconcile. */
const noFence = 0n

const keyRefused = ({ refusal, scope }: KeyRefused) =>
  refusal === "other_account"
    ? problem(409, "other_account", refusalText.other_account)
    : problem(422, `credential_${refusal}`, refusalText[refusal], {
        errors: [
          {
            pointer: "/secretKey",
            message:
              scope === undefined ? refusalText[refusal] : `lacks the right that the scope ${scope} needs`
          }
        ]
      })

export const configuration = Effect.gen(function* () {
  const connections = yield* Connections
  const fingerprint = yield* Fingerprint
  const processor = yield* Processor
  const projections = yield* Projections
  const resources = yield* Resources

  const current = Effect.gen(function* () {
    const { orgId } = yield* RequestScope
    const { projectId, environment } = yield* targetEnvironment
    return Option.getOrUndefined(
      yield* Effect.mapError(connections.find(orgId, projectId, environment), fromStore)
    )
  })
  const view = (connection: Connection | undefined) =>
    answer(PaymentsConfig, configView(connection, connections.webhookUrl))

  /** Fails unless the key is of the right kind for the scopes, and of the account that is known. */
  const checked = Effect.fnUntraced(function* (
    key: Redacted.Redacted,
    wanted: Wanted,
    before: Connection | undefined
  ) {
    const seen = before === undefined ? [] : yield* Effect.mapError(projections.some(before), fromStore)
    const paths = seen.map(({ type, processorId }) => `${listPaths[type]}/${processorId}` as const)
    const refused = yield* Effect.mapError(
      checkKey(processor, key, wanted.credentialScopes, paths),
      (error) =>
        problem(503, "processor_unavailable", "Stripe does not answer at the moment; try again later", {
          headers: { "retry-after": String(Math.ceil(Math.max(error.retryAfterSeconds ?? 0, 5))) }
        })
    )
    if (refused !== undefined) return yield* keyRefused(refused)
  })

  /** Stores it all in one write, with the values sealed. */
  const write = Effect.fnUntraced(function* (
    before: Connection | undefined,
    wanted: Wanted,
    given: Given,
    /** Whether the key was tried with these scopes just now. */
    isChecked: boolean
  ) {
    const { orgId, caller } = yield* RequestScope
    const { projectId, environment, environmentUid } = yield* targetEnvironment
    const values = Object.entries(given).flatMap(([key, value]) =>
      value === undefined ? [] : [[key, value] as const]
    )
    const prints = {
      secretKey: before?.spec.credentials.secretKey ?? "",
      webhookSecret: before?.spec.credentials.webhookSecret ?? "",
      ...Object.fromEntries(values.map(([key, value]) => [key, fingerprint(value)]))
    }
    const spec: CustomerPaymentsSpec = {
      credentialScopes: wanted.credentialScopes,
      allowedRedirectOrigins: wanted.allowedRedirectOrigins,
      credentials: prints,
      checkedKey: isChecked ? prints.secretKey : (before?.spec.checkedKey ?? null)
    }
    const secrets = Object.fromEntries(
      values.map(([key, value]) => [paymentCredentialField(key), Redacted.make(value)])
    )
    const uid = before?.uid ?? randomUUIDv7()
    const change: Change =
      before === undefined
        ? {
            action: "create",
            uid,
            kind: CustomerPayments.name,
            projectId,
            environment,
            name: customerPaymentsName,
            parentUid: environmentUid,
            spec,
            managedBy: "api",
            secrets
          }
        : { action: "update", uid, expectedGeneration: before.generation, spec, managedBy: "api", secrets }
    const stored = resources.write(orgId, [change], caller.actor)
    yield* Effect.mapError(stored, (error) =>
      error._tag === "NameTaken" || error._tag === "RevisionConflict"
        ? problem(
            409,
            "revision_conflict",
            "Somebody else has just changed the connection; look, and try again"
          )
        : fromStore(error)
    )
    // Webhooks hold from now on, and not only when the connection was looked at.
    if (before === undefined && given.webhookSecret !== undefined) {
      const secret = { secret: given.webhookSecret, fingerprint: prints.webhookSecret }
      yield* Effect.mapError(connections.keepSecret({ orgId, uid, fence: noFence }, secret), fromStore)
    }
  })

  return {
    getConfig: Effect.fnUntraced(function* () {
      return view(yield* current)
    }),
    connect: Effect.fnUntraced(function* ({
      payload: { secretKey, webhookSecret, ...wanted }
    }: {
      readonly payload: Wanted & { readonly secretKey: string; readonly webhookSecret: string }
    }) {
      const before = yield* current
      yield* checked(Redacted.make(secretKey), wanted, before)
      yield* write(before, wanted, { secretKey, webhookSecret }, true)
      return view(yield* current)
    }),
    updateConfig: Effect.fnUntraced(function* ({
      payload: { webhookSecret, ...asked }
    }: {
      readonly payload: Partial<Wanted> & { readonly webhookSecret?: string }
    }) {
      const before = yield* current
      if (before === undefined) return yield* notConfigured
      const { credentialScopes, allowedRedirectOrigins } = before.spec
      const wanted = { credentialScopes, allowedRedirectOrigins, ...asked }
      const checks = asked.credentialScopes !== undefined || before.refusal === "unchecked"
      if (checks) yield* checked(before.secretKey, wanted, before)
      yield* write(before, wanted, { secretKey: undefined, webhookSecret }, checks)
      return view(yield* current)
    }),
    disconnect: Effect.fnUntraced(function* () {
      const { caller } = yield* RequestScope
      const before = yield* current
      if (before === undefined) return yield* notFound("connection to Stripe in this environment")
      // Where Stripe does not answer, its endpoint stays and gets 404.
      const farewell = removeEndpoint({ processor, connections }, before, before.secretKey).pipe(
        Effect.timeoutOption(longestFarewell),
        Effect.catch((error) => Effect.logWarning("a webhook endpoint at Stripe was left behind", error))
      )
      yield* farewell
      yield* Effect.mapError(connections.disconnect(before, caller.actor), fromStore)
      // A reconcile that was under way may have missed the endpoint and made it anew before it was over.
      yield* farewell
      return { ok: true as const }
    })
  }
})
