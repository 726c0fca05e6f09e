/**
 * Where browsers send what they measured (`speedInsights.collect`), and the program that they measure with.
 *
 * A page that is going away can send `text/plain` without asking first (WHATWG Fetch, "CORS-safelisted request-header"): it
 * could not wait for the answer to a preflight. Of who sends, nothing is stored: no address, no browser, no query.
 */
import { createHash, createHmac, randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as ByteSize from "effect/ByteSize"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as HttpIncomingMessage from "effect/http/HttpIncomingMessage"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { RateLimits } from "#src/access/RateLimits.ts"
import { checkBody } from "#src/api/body.ts"
import { faultsOf, malformed } from "#src/api/failure.ts"
import { readJson } from "#src/api/json.ts"
import { tooMany } from "#src/api/limits.ts"
import {
  fromStore,
  internalResponse,
  invalid,
  notFound,
  type Problem,
  problem,
  toResponse
} from "#src/api/problem.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { aheadMs, longestBatch, oldestMs, SpeedBatch } from "./batch.ts"
import type { DailyBudgetUsed } from "./daily-budget.ts"
import { clientFile, clientPath, collectPath } from "./paths.ts"
import { type IntakeBusy, SpeedBatches } from "./SpeedBatches.ts"
import { type Known, SpeedProjects } from "./SpeedProjects.ts"
import { batchesPerMinute } from "./settings.ts"

/** How long what is known of a project is remembered. */
const rememberedMs = 5_000
const mostRemembered = 10_000
/** References that this process has not seen and looks up in a second. */
const mostNewPerSecond = 100

const unknown = notFound("project")
const disabled = problem(403, "speed_insights_disabled", "The project does not take measurements")
const otherOrigin = problem(
  403,
  "origin_not_allowed",
  "Pages of this origin may not send measurements of the project; its allowedOrigins can name it"
)
const mediaType = problem(415, "unsupported_media_type", "Send a batch as text/plain or application/json")
const busy = problem(503, "intake_busy", "More measurements come than can be stored; try again shortly", {
  headers: { "retry-after": "5" }
})

const decode = Schema.decodeUnknownResult(SpeedBatch, { errors: "all", onExcessProperty: "error" })
const daySeconds = 24 * 3_600
const fromIntake = (error: DailyBudgetUsed | IntakeBusy | StoreUnavailable): Problem => {
  switch (error._tag) {
    case "DailyBudgetUsed":
      return tooMany("speed-day", { ...error, remaining: 0 }, daySeconds)
    case "IntakeBusy":
      return busy
    case "StoreUnavailable":
      return fromStore(error)
  }
}

/** The form of public references: nothing else is looked up. */
const isReference = (ref: string): boolean => /^[a-z][a-z0-9-]{1,61}$/u.test(ref)

interface Remembered {
  readonly known: Option.Option<Known>
  readonly untilMs: number
}

/** As the newest; the oldest makes room. */
const remember = (into: Map<string, Remembered>, ref: string, one: Remembered): void => {
  into.delete(ref)
  into.set(ref, one)
  if (into.size > mostRemembered) for (const oldest of into.keys()) return void into.delete(oldest)
}

/**
 * Who is asked once for a project's settings is not asked again for some seconds; what is unknown is remembered too, apart, so
 * that made-up references push out no project. Of these so many are looked up in a second; a project that was known is always.
 */
const makeRemembered = Effect.map(SpeedProjects, (projects) => {
  const [projectsSeen, unknownSeen] = [new Map<string, Remembered>(), new Map<string, Remembered>()]
  let second = 0
  let newInSecond = 0
  return Effect.fnUntraced(function* (ref: string) {
    if (!isReference(ref)) return yield* unknown
    const now = yield* Clock.currentTimeMillis
    const before = projectsSeen.get(ref) ?? unknownSeen.get(ref)
    if (before !== undefined && now < before.untilMs) return before.known
    if (!projectsSeen.has(ref)) {
      if (now >= second + 1_000) [second, newInSecond] = [now, 0]
      if (++newInSecond > mostNewPerSecond) return yield* busy
    }
    const known = yield* Effect.mapError(projects.find(ref), fromStore)
    const [into, other] = Option.isSome(known) ? [projectsSeen, unknownSeen] : [unknownSeen, projectsSeen]
    other.delete(ref)
    remember(into, ref, { known, untilMs: now + rememberedMs })
    return known
  })
})

const decodeBatch = (text: string): Effect.Effect<SpeedBatch, Problem> => {
  const read = readJson(text)
  if (read === undefined) return Effect.fail(malformed)
  if (Result.isFailure(read)) return Effect.fail(invalid(read.failure))
  const decoded = decode(read.success.value)
  return Result.isFailure(decoded)
    ? Effect.fail(invalid(faultsOf("", decoded.failure.issue)))
    : Effect.succeed(decoded.success)
}

const checkTimes = Effect.fnUntraced(function* ({ events }: SpeedBatch) {
  const now = yield* Clock.currentTimeMillis
  const faults = events.flatMap(({ timestamp }, index) => {
    const at = DateTime.toEpochMillis(timestamp)
    return at >= now - oldestMs && at <= now + aheadMs
      ? []
      : [{ pointer: `/events/${index}/timestamp`, message: "must be of the last day" }]
  })
  if (faults.length > 0) return yield* invalid(faults)
})

const originOf = ({ headers }: HttpServerRequest.HttpServerRequest) => headers["origin"]

/** With the page's origin allowed, it may read the answer. */
const readableBy = (origin: string) =>
  HttpServerResponse.setHeaders({ "access-control-allow-origin": origin, vary: "origin" })

const collecting = Effect.gen(function* () {
  const batches = yield* SpeedBatches
  const limits = yield* RateLimits
  const secrets = yield* PlatformSecrets
  const perMinute = yield* batchesPerMinute
  const find = yield* makeRemembered
  const key = Redacted.value(
    yield* secrets.ensure(
      "speed.sampling",
      Effect.sync(() => Redacted.make(randomBytes(32).toString("base64url")))
    )
  )
  /** The same batch is always kept or never, whoever asks and however often. */
  const isKept = ({ projectId, sampleRate }: Known, batchId: string): boolean =>
    createHmac("sha256", key).update(`${projectId} ${batchId}`).digest().readUInt32BE(0) <
    sampleRate * 2 ** 32

  const allowed = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
    const { projectRef = "" } = yield* HttpRouter.params
    const known = Option.getOrUndefined(yield* find(projectRef))
    if (known === undefined) return yield* unknown
    if (!known.enabled) return yield* disabled
    const origin = originOf(request)
    if (origin === undefined || !known.origins.has(origin)) return yield* otherOrigin
    return { known, origin }
  })

  const take = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest, known: Known) {
    yield* checkBody(request)
    const type = request.headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase()
    if (type !== undefined && type !== "text/plain" && type !== "application/json") return yield* mediaType
    const text = yield* Effect.orDie(request.text)
    const batch = yield* decodeBatch(text)
    yield* checkTimes(batch)
    const environmentUid = known.environments.get(batch.environment)
    if (environmentUid === undefined)
      return yield* invalid([{ pointer: "/environment", message: "is no environment of the project" }])
    const bucket = `speed:${known.projectId}`
    const taken = yield* Effect.mapError(limits.take(bucket, perMinute), fromStore)
    if (!taken.allowed) return yield* tooMany("speed", taken)
    if (!isKept(known, batch.batchId)) return { accepted: 0, duplicate: false, sampledOut: true }
    const { orgId, projectId } = known
    const { batchId, events } = batch
    const added = yield* Effect.mapError(
      batches.add({ orgId, projectId, environmentUid, batchId, events, bytes: Buffer.byteLength(text) }),
      fromIntake
    )
    return { accepted: added ? events.length : 0, duplicate: !added, sampledOut: false }
  })

  const collect = Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const { known, origin } = yield* allowed(request)
    return yield* take(request, known).pipe(
      Effect.map((body) =>
        HttpServerResponse.jsonUnsafe(body, { status: 202, headers: { "cache-control": "no-store" } })
      ),
      Effect.catchTag("Problem", toResponse),
      Effect.map(readableBy(origin))
    )
  }).pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(longestBatch)),
    Effect.catchTag("Problem", toResponse),
    Effect.catchDefect((defect) =>
      Effect.andThen(Effect.logError("measurements failed unexpectedly", defect), internalResponse)
    )
  )

  /** Of a page that sends JSON. What may not send gets no permission, and no reason. */
  const preflight = Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const empty = HttpServerResponse.empty({
      status: 204,
      headers: { allow: "OPTIONS, POST", vary: "origin" }
    })
    return yield* Effect.match(allowed(request), {
      onFailure: () => empty,
      onSuccess: ({ origin }) =>
        HttpServerResponse.setHeaders(readableBy(origin)(empty), {
          "access-control-allow-methods": "POST",
          "access-control-allow-headers": "content-type",
          "access-control-max-age": "600"
        })
    })
  })
  return { collect, preflight }
})

/** Any page may load it, from wherever it is. */
const client = Effect.gen(function* () {
  const program = yield* Effect.promise(() => fs.readFile(clientFile))
  const etag = `"${createHash("sha256").update(program).digest("base64url").slice(0, 22)}"`
  return HttpServerResponse.uint8Array(program, {
    contentType: "text/javascript; charset=utf-8",
    headers: {
      etag,
      "cache-control": "public, max-age=3600",
      "access-control-allow-origin": "*",
      "cross-origin-resource-policy": "cross-origin"
    }
  })
})

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const { collect, preflight } = yield* collecting
    return Layer.mergeAll(
      HttpRouter.add("POST", collectPath, collect),
      HttpRouter.add("OPTIONS", collectPath, preflight),
      HttpRouter.add("GET", clientPath, yield* client)
    )
  })
)
