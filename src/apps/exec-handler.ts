/**
 * Runs a program in an instance of an app, beside the app, as the instance's own user and within its bounds. It lives as
 * long as the request: its end is the program's, as are its time, the end of the caller's access and too much output.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { AppSpec } from "#schemas/app.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { fromStore, notFound, problem } from "#src/api/problem.ts"
import { makeStreams, StreamLimits } from "#src/api/streams.ts"
import { AppConfig } from "#src/config.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { AppOrigins } from "#src/outbound/AppOrigins.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { Apps } from "./Apps.ts"
import type { Instance } from "./app-state.ts"
import { type ExecLine, type ExecRequest, execSeconds } from "./exec-request.ts"

/** Bytes that a program may print. */
const mostOutput = 16 * 1024 * 1024
/** At once, in one process. */
const limits = { credential: 5, organization: 10 }
const heartbeat = "10 seconds"
/** Longer than ending it takes: then nobody sees to it any more. */
const endedLateMs = 60_000

const decodeSpec = Schema.decodeUnknownEffect(AppSpec)

export const makeExec = Effect.gen(function* () {
  const apps = yield* Apps
  const engine = yield* ContainerEngine
  const installation = yield* Installation
  const origins = yield* AppOrigins
  const sites = yield* EdgeSites
  const { region } = yield* AppConfig
  const streams = yield* Effect.provideService(makeStreams, StreamLimits, limits)

  const elsewhere = problem(
    503,
    "engine_unreachable",
    "The container engine that runs this app cannot be reached from here; ask a control plane on the app's machine",
    { headers: { "retry-after": "30" } }
  )
  const noInstance = problem(
    409,
    "no_instance",
    "No instance of the app runs; svc ps shows what became of them"
  )

  const chosen = Effect.fnUntraced(function* (app: ResourceRecord, asked: string | undefined) {
    const found = yield* Effect.mapError(apps.instances(app.orgId, app.uid, 50), fromStore)
    const runs = ({ containerMade, state }: Instance) => containerMade && state !== "ended"
    if (asked === undefined)
      return found.find(({ state }) => state === "healthy") ?? found.find(runs) ?? (yield* noInstance)
    const one = found.find(({ uid }) => uid === asked) ?? (yield* notFound("instance of this app"))
    return runs(one) ? one : yield* noInstance
  })

  return Effect.fnUntraced(function* (
    app: ResourceRecord,
    { command, instance: asked, stdin, timeoutSeconds = execSeconds.usual }: ExecRequest
  ) {
    const scope = yield* RequestScope
    // What it printed was not kept, and it may have had its effect.
    if (scope.reservation.again)
      return yield* problem(
        409,
        "already_run",
        "A request with this idempotency key has run its program before"
      )
    const counted = yield* streams(scope)
    const spec = yield* Effect.orDie(decodeSpec(app.spec))
    if (spec.region !== region || (yield* engine.state)._tag !== "Ready") return yield* elsewhere
    const site = { orgId: app.orgId, environmentUid: app.parentUid ?? "" }
    yield* Effect.mapError(origins.find(site.orgId, site.environmentUid), fromStore)
    const instance = yield* chosen(app, asked)
    const name = installation.nameOf(instance.uid)
    const container = yield* Effect.mapError(engine.inspect(name), () => elsewhere)
    if (Option.isNone(container) || container.value.state !== "running") return yield* noInstance
    yield* Effect.mapError(apps.auditExec(app.orgId, instance.uid, command[0], scope.caller.actor), fromStore)

    const began = yield* Clock.currentTimeMillis
    const lines = Stream.callback<ExecLine>(
      Effect.fnUntraced(function* (queue) {
        const say = (line: ExecLine) => Queue.offer(queue, line)
        let printed = 0
        const run = engine.exec(
          name,
          {
            command,
            env: {},
            attended: { endsBy: began + timeoutSeconds * 1_000 + endedLateMs },
            ...(stdin === undefined ? {} : { stdin: Buffer.from(stdin, "base64") })
          },
          Effect.fnUntraced(function* (pieces) {
            for (const { stream, content } of pieces) {
              printed += content.length
              if (printed > mostOutput)
                return yield* Effect.fail(
                  failed("too_much_output", `The program printed more than ${mostOutput} bytes`)
                )
              yield* say({ type: "output", stream, data: content.toString("base64") })
            }
          })
        )
        const over = run.pipe(
          Effect.map((code): ExecLine => ({ type: "exit", code })),
          Effect.timeoutOrElse({
            duration: Duration.seconds(timeoutSeconds),
            orElse: () =>
              Effect.succeed(failed("timed_out", `The program was ended after ${timeoutSeconds} s`))
          }),
          Effect.catch((error) =>
            Effect.succeed("_tag" in error ? failed("instance_lost", error.message) : error)
          )
        )
        /** Also what keeps the app awake: one that falls asleep stands still, and this program with it. */
        const attend = Effect.gen(function* () {
          yield* Effect.ignore(sites.requestWake(site))
          yield* say({ type: "alive" })
          return yield* Effect.orElseSucceed(scope.stillHolds, () => true)
        }).pipe(
          Effect.delay(heartbeat),
          Effect.repeat({ while: (holds) => holds, schedule: Schedule.forever }),
          Effect.as(failed("access_ended", "The credential may do this no more"))
        )
        yield* say(yield* Effect.raceFirst(over, attend))
        yield* Queue.end(queue)
      }),
      { bufferSize: 16, strategy: "suspend" }
    )
    return HttpServerResponse.stream(
      lines.pipe(
        counted,
        Stream.map((line) => `${JSON.stringify(line)}\n`),
        Stream.encodeText
      ),
      {
        contentType: "application/x-ndjson",
        headers: { "cache-control": "no-store", "x-accel-buffering": "no" }
      }
    )
  })
})

const failed = (
  code: Extract<ExecLine, { readonly type: "failed" }>["code"],
  message: string
): Extract<ExecLine, { readonly type: "failed" }> => ({ type: "failed", code, message })
