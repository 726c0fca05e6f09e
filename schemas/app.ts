/** `App`: what answers at an environment's address: instances of the deployment that was chosen. */
import * as Schema from "effect/Schema"
import { Region } from "./catalog.ts"
import { progress, warning } from "./condition.ts"
import { withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"

/** The one name that the resource has in its environment. */
export const appName = "app"

const mostInstances = 10
const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

/** A path with one slash at its start; what comes after it is for the app to read. */
const HealthPath = Schema.String.check(
  Schema.isPattern(/^\/(?!\/)[\x21-\x22\x24-\x5b\x5d-\x7e]*$/u, {
    expected: "a path that starts with exactly one slash, without spaces, # and backslashes"
  }),
  Schema.isMaxLength(1_024)
)

export const HealthCheck = Schema.Struct({
  path: withDefault(HealthPath, "/", "An instance is healthy when this answers with a status below 400"),
  timeoutSeconds: withDefault(integer(1, 60), 5, "How long one answer may take"),
  startSeconds: withDefault(integer(5, 900), 120, "How long a new instance may take until it is healthy"),
  failures: withDefault(
    integer(0, 100),
    3,
    "Checks in a row that a healthy instance may not answer until another one takes its place; 0: any number"
  )
}).annotate({ identifier: "AppHealthCheck" })

export const Idle = Schema.Struct({
  pauseSeconds: withDefault(integer(60, 86_400), 300, "Without a request, until the instances are paused"),
  stopSeconds: withDefault(
    integer(60, 604_800),
    3_600,
    "Without a request, until the instances are stopped and their memory is free"
  )
}).annotate({ identifier: "AppIdle" })

/** What users may say of an app. */
export const appSettings = {
  instances: withDefault(integer(1, mostInstances), 1, "How many run while the app is awake, at least"),
  maxInstances: withDefault(
    integer(1, mostInstances),
    1,
    "How many run at most, as many as the requests under way need; fewer than `instances` means no more than these"
  ),
  requestsPerInstance: withDefault(
    integer(1, 10_000),
    50,
    "Requests under way, per instance, above which another one is started"
  ),
  cpus: withDefault(
    Schema.Finite.check(Schema.isBetween({ minimum: 0.1, maximum: 16 })),
    0.5,
    "Processors of one instance"
  ),
  memoryMb: withDefault(integer(32, 65_536), 512, "MiB of memory of one instance"),
  port: withDefault(integer(1, 65_535), 8_080, "Where the app listens; it is told as `PORT`"),
  healthCheck: withDefault(HealthCheck, {}, "How it is seen that an instance can take requests"),
  idle: withDefault(Idle, {}, "When an app of a project that scales to zero goes to sleep")
}

export const AppSpec = Schema.Struct({
  region: Region,
  ...appSettings,
  /** The deployment that is to answer; absent until the first one asks for it. */
  deployment: Schema.optionalKey(Schema.String),
  /** When that one was chosen: what was made before this moment does not take its place by itself. */
  chosenAt: Schema.optionalKey(Schema.String),
  /** Rises when somebody asks for new instances of the same. */
  restarts: withDefault(Schema.Int, 0)
}).annotate({ identifier: "AppSpec" })
export type AppSpec = typeof AppSpec.Type

export const AppPower = Schema.Literals(["awake", "paused", "stopped"]).annotate({
  identifier: "AppPower",
  description: "`paused` and `stopped`: it sleeps, and the next request wakes it"
})
export type AppPower = typeof AppPower.Type

export const AppStatus = Schema.Struct({
  /** The deployment whose instances take the requests. */
  deployment: Schema.NullOr(Schema.String),
  power: AppPower,
  healthy: Schema.Int
}).annotate({ identifier: "AppStatus" })
export type AppStatus = typeof AppStatus.Type

export const App = defineKind({
  name: "App",
  summary: "What answers at an environment's address: instances of the chosen deployment.",
  scope: "environment",
  placement: "host",
  spec: AppSpec,
  status: AppStatus,
  fields: Object.keys(AppSpec.fields),
  immutable: ["region"],
  internal: ["deployment", "chosenAt", "restarts"],
  generated: [],
  references: [],
  singleton: true,
  deleteRole: "admin",
  reasons: {
    NotDeployed: progress("Nothing was deployed yet"),
    Rolling: progress("New instances are started; requests go to them once they are healthy"),
    InstancesStarting: progress("Its instances are being started"),
    CrashLooping: warning("Instances end again and again; new ones are started more and more rarely"),
    RollFailed: warning("The new version did not get healthy; the one before it goes on answering"),
    EngineUnreachable: warning("The container engine does not answer"),
    OriginElsewhere: warning("The environment names an origin, which takes the requests instead of the app")
  },
  // A roll that fails ends by itself; a crash loop goes on and is told by its reason.
  deadlineSeconds: 3_600
})
