/** Handlers of `domains.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Domain, DomainSpec } from "#schemas/domain.ts"
import { defaultEnvironment, sharedPreview } from "#schemas/names.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billing, handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, problem } from "#src/api/problem.ts"
import { resourceHandlers } from "#src/api/resource-handlers.ts"
import { targetProject, targetRecord } from "#src/api/target.ts"
import { viewAll } from "#src/api/views.ts"
import { precondition, remove } from "#src/api/writing.ts"
import { AppConfig } from "#src/config.ts"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import { EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { Interventions } from "#src/store/Interventions.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { DomainList, DomainView } from "./api.ts"
import { Claims, challengeName, challengeOf } from "./Claims.ts"
import { Resolver } from "./dns/Resolver.ts"
import { makeRefusal } from "./names.ts"
import { makeViewer } from "./view.ts"

/** How long a check waits for the look that it asked for. */
const lookPatience = "10 seconds"
/** How long an addition waits for the environment's address. */
const addressPatience = "3 seconds"
const decodeSpec = Schema.decodeUnknownOption(DomainSpec)

const noPreview = {
  pointer: "/environment",
  message: "must be another one: previews take no custom domains"
}

export const layer = HttpApiBuilder.group(
  Api,
  "domains",
  Effect.fnUntraced(function* (handlers) {
    yield* AppConfig
    const resources = yield* Resources
    const interventions = yield* Interventions
    const sites = yield* EdgeSites
    const nodes = yield* EdgeNodes
    const certificates = yield* Certificates
    const claims = yield* Claims
    const resolver = yield* Resolver
    const refusalOf = yield* makeRefusal
    const viewer = yield* makeViewer

    /** Every edge serves what is stored, or the request changes nothing. */
    const edgeAnswers = (unchanged: string) =>
      Effect.mapError(nodes.ask, (error) =>
        error._tag === "EdgeUnreachable"
          ? problem(502, "edge_unreachable", `${error.message}. ${unchanged}`)
          : fromStore(error)
      )

    const domains = yield* resourceHandlers(Domain, {
      view: DomainView,
      viewer,
      taken: (name) => (failure) =>
        failure.code === "name_taken"
          ? problem(409, "hostname_taken", `The host name ${name} is in use on this platform`)
          : failure
    })

    /** A new environment gets its address within moments: the answer is to name it. */
    const addressed = (orgId: string, environmentUid: string) =>
      Effect.gen(function* () {
        for (let pause = 20; ; pause = Math.min(250, pause * 1.5)) {
          const found = yield* Effect.mapError(sites.managedHosts(orgId, [environmentUid]), fromStore)
          if (found.size > 0) return
          yield* Effect.sleep(pause)
        }
      }).pipe(Effect.timeoutOrElse({ duration: addressPatience, orElse: () => Effect.void }))

    /**
     * A name that somebody else has claimed and not proved is taken over by who shows a TXT record for it. Otherwise a
     * claim that is made anew before it lapses would keep the owner away for ever.
     */
    const contest = Effect.fnUntraced(function* (orgId: string, hostname: string) {
      if (!(yield* Effect.mapError(claims.isContestable(orgId, hostname), fromStore))) return
      const [record, challenge] = [challengeName(hostname), challengeOf(orgId, hostname)]
      const shown = yield* resolver
        .of(orgId)
        .txt(record)
        .pipe(
          Effect.map(({ records }) => records.some((text) => text.trim() === challenge)),
          Effect.catch(() => Effect.succeed(false))
        )
      if (!shown)
        return yield* problem(
          409,
          "hostname_taken",
          `The host name ${hostname} is in use on this platform, by somebody who has not proved it yet. If it is yours, create the record ${record} TXT "${challenge}" and add it again`
        )
      yield* Effect.mapError(claims.displace(orgId, hostname), fromStore)
    })

    /** Whether another domain of the environment sends its requests on to this one. */
    const isNamed = Effect.fnUntraced(function* ({ orgId, projectId, environment, name }: ResourceRecord) {
      const all = yield* Effect.mapError(
        resources.listKind(orgId, Domain.name, projectId, environment ?? undefined),
        fromStore
      )
      return all.some(
        ({ spec, deletionRequestedAt }) =>
          deletionRequestedAt === null && Option.getOrUndefined(decodeSpec(spec))?.redirectTo === name
      )
    })

    /**
     * The record once a look has ended that began after now, or as it is after a while. Tokens are UUIDs of version 7,
     * so a later one stands for whoever asked before.
     */
    const looked = Effect.fnUntraced(function* (record: ResourceRecord) {
      const { orgId, caller } = yield* RequestScope
      const token = yield* Effect.mapError(interventions.retry(orgId, record.uid, caller.actor), fromStore)
      const read = Effect.flatMap(Effect.mapError(resources.get(orgId, record.uid), fromStore), (found) =>
        Option.isSome(found) ? Effect.succeed(found.value) : Effect.fail(notFound("custom domain"))
      )
      const settled = Effect.gen(function* () {
        for (let pause = 20; ; pause = Math.min(250, pause * 1.5)) {
          const found = yield* read
          if (found.handledRetry !== null && found.handledRetry >= token) return found
          yield* Effect.sleep(pause)
        }
      })
      return yield* Effect.timeoutOrElse(settled, { duration: lookPatience, orElse: () => read })
    })

    return handlers.handleAll(
      handlersOf(Api.groups.domains)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { projectId } = yield* targetProject
          const records = yield* Effect.mapError(resources.listKind(orgId, Domain.name, projectId), fromStore)
          const oldestFirst = records.toSorted(
            (a, b) => a.createdAt.getTime() - b.createdAt.getTime() || (a.uid < b.uid ? -1 : 1)
          )
          return answer(DomainList, yield* viewAll(oldestFirst, yield* viewer(oldestFirst)))
        }),
        add: domains.create(
          Effect.fnUntraced(function* ({ payload: { hostname, environment = defaultEnvironment, ...spec } }) {
            const { orgId } = yield* RequestScope
            const { projectId, project } = yield* targetProject
            const refusal = refusalOf(hostname)
            const faults = [
              ...(refusal === undefined ? [] : [{ pointer: "/hostname", message: refusal }]),
              ...(environment === sharedPreview ? [noPreview] : [])
            ]
            if (faults.length > 0) return yield* invalid(faults)
            const place = yield* Effect.mapError(resources.place(orgId, projectId, environment), fromStore)
            const parentUid = Option.getOrUndefined(place)?.environmentUid ?? null
            if (parentUid === null) return yield* notFound("environment in this project")
            const found = yield* Effect.mapError(resources.get(orgId, parentUid), fromStore)
            if (Option.exists(found, (one) => one.parentUid !== one.projectId))
              return yield* invalid([noPreview])
            yield* billing
            yield* edgeAnswers("Nothing was added")
            yield* contest(orgId, hostname)
            yield* addressed(orgId, parentUid)
            return { name: hostname, spec, place: { projectId, project, environment, parentUid } }
          })
        ),
        get: domains.get,
        update: domains.update(({ payload: { redirectTo, ...options } }) =>
          Effect.succeed(({ redirectTo: before, ...current }) => ({
            ...current,
            ...options,
            ...(redirectTo === undefined
              ? before === undefined
                ? {}
                : { redirectTo: before }
              : redirectTo === null
                ? {}
                : { redirectTo })
          }))
        ),
        check: Effect.fnUntraced(function* () {
          const record = yield* targetRecord
          const { orgId, name } = record
          yield* edgeAnswers("The domain is as it was")
          yield* Effect.mapError(certificates.hurry({ orgId, name }), fromStore)
          return yield* domains.viewOf(yield* looked(record))
        }),
        remove: Effect.fnUntraced(function* () {
          const record = yield* targetRecord
          yield* precondition(record)
          const key = { orgId: record.orgId, domainUid: record.uid, hostname: record.name }
          const host = Option.getOrUndefined(yield* Effect.mapError(sites.findHost(key), fromStore))
          // What is not served needs no edge; what is not going to be removed stays in service.
          if (host === undefined || record.protected || (yield* isNamed(record))) return yield* remove(record)
          // Were this process to vanish half-way, the next look at the domain would bring the host name back.
          const putBack = Effect.ignore(sites.putHost(host))
          return yield* Effect.mapError(sites.removeHost(key), fromStore).pipe(
            Effect.andThen(edgeAnswers("The domain was kept")),
            Effect.andThen(Effect.uninterruptible(remove(record))),
            Effect.onError(() => putBack)
          )
        })
      })
    )
  })
)
