/**
 * Who calls a gateway: the holder of one of its keys, or an app of its environment with the environment's token. Asked
 * for every call, in one round trip that calls of the same moment share, and remembered nowhere: a revoked key counts
 * from the next call on. Calls that go on for long are told when their right ends.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { AiGateway, AiGatewaySpec } from "#schemas/ai-gateway.ts"
import type { Json } from "#schemas/kind.ts"
import { Name } from "#schemas/names.ts"
import { fromStored } from "#schemas/stored-spec.ts"
import { digestOf } from "#src/access/Access.ts"
import { batched } from "#src/access/batching.ts"
import { answered } from "#src/engine/answered.ts"
import { Db, orUnavailable, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type Ended, watchCallers } from "./watch-callers.ts"

export interface GatewayCaller {
  readonly orgId: string
  readonly billingActive: boolean
  /** Undefined: the credential reaches no gateway of this name. */
  readonly gateway:
    | {
        readonly uid: string
        readonly projectId: string
        readonly environment: string
        readonly name: string
        readonly spec: AiGatewaySpec
      }
    | undefined
  /** Null: an app, with its environment's token. */
  readonly keyId: string | null
  /** Of the key or of the token. */
  readonly credentialId: string
}

const keyForm = /^svcgw_[A-Za-z0-9]{40}$/
const tokenForm = /^svcapp_[A-Za-z0-9]{40}$/
const longestLookMs = 5_000

interface Row {
  readonly ord: number
  readonly org_id: string
  readonly billing_status: string
  readonly project_id: string
  readonly environment: string
  readonly credential_id: string
  readonly is_key: boolean
  readonly last_used_at: Date | null
  readonly gateway_uid: string | null
  readonly spec: Json
}

interface Question {
  readonly digest: string
  readonly name: string
}

const isName = Schema.is(Name)
const decodeSpec = Schema.decodeUnknownEffect(AiGatewaySpec)

export class GatewayCallers extends Context.Service<
  GatewayCallers,
  {
    /** None: the credential does not hold. `bearer` is what the request presents, `name` what its path names. */
    readonly identify: (
      bearer: Redacted.Redacted,
      name: string
    ) => Effect.Effect<Option.Option<GatewayCaller>, StoreUnavailable>
    /** Calls `tell` once the caller may not call the gateway any more, within moments of its being so, until the answer is called. */
    readonly onEnded: (caller: GatewayCaller, tell: (why: Ended) => void) => () => void
  }
>()("svc/ai-gateways/GatewayCallers") {
  static readonly layer = Layer.effect(
    GatewayCallers,
    Effect.gen(function* () {
      const { api: sql, engine } = yield* Db
      const background = yield* FiberSet.make()
      const watched = yield* watchCallers()

      const find = yield* batched(
        ({ digest, name }: Question) => `${digest} ${name}`,
        Effect.fnUntraced(function* (questions: ReadonlyArray<Question>) {
          const asked = questions.map((question, ord) => ({ ...question, ord }))
          const rows = yield* answered(
            "identify callers",
            longestLookMs
          )(
            repeatable(sql<Row>`
              select q.ord, c.* from jsonb_to_recordset(${sql.json(asked)}::jsonb) as q(ord int, digest text, name text)
              cross join lateral svc_ai_caller(decode(q.digest, 'hex'), q.name) c`)
          )
          const answers = questions.map((): Option.Option<Row> => Option.none())
          for (const row of rows) answers[row.ord] = Option.some(row)
          return answers
        })
      )

      /** In the background, and at most once a minute. */
      const used = Effect.fnUntraced(function* ({ org_id, credential_id, is_key, last_used_at }: Row) {
        const now = yield* Clock.currentTimeMillis
        if (!is_key || (last_used_at !== null && now - last_used_at.getTime() < 60_000)) return
        const note = orUnavailable(engine`
          update ai_gateway_key set last_used_at = now() where org_id = ${org_id}::uuid and id = ${credential_id}::uuid
            and (last_used_at is null or last_used_at < now() - interval '1 minute')`)
        yield* FiberSet.run(
          background,
          Effect.catch(note, (error) => Effect.logDebug("the use of a key could not be noted", error))
        )
      })

      return GatewayCallers.of({
        identify: Effect.fnUntraced(function* (bearer, name) {
          const token = Redacted.value(bearer)
          if (!keyForm.test(token) && !tokenForm.test(token)) return Option.none()
          // What can name no gateway names none, and gets no further than this.
          const found = yield* find({
            digest: digestOf(token).toString("hex"),
            name: isName(name) ? name : ""
          })
          if (Option.isNone(found)) return Option.none()
          const row = found.value
          yield* used(row)
          const caller: GatewayCaller = {
            orgId: row.org_id,
            billingActive: row.billing_status === "active",
            gateway:
              row.gateway_uid === null
                ? undefined
                : {
                    uid: row.gateway_uid,
                    projectId: row.project_id,
                    environment: row.environment,
                    name,
                    spec: yield* Effect.orDie(decodeSpec(fromStored(AiGateway.name, row.spec)))
                  },
            keyId: row.is_key ? row.credential_id : null,
            credentialId: row.credential_id
          }
          return Option.some(caller)
        }),
        onEnded: watched
      })
    })
  )
}
