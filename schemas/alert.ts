/** `Alert`: watches a signal of resources of its project, and says when it has been out of bounds for too long. */
import * as Schema from "effect/Schema"
import * as SchemaGetter from "effect/SchemaGetter"
import { warning } from "./condition.ts"
import { DisplayName } from "./display-text.ts"
import { inputOf, withDefault } from "./input.ts"
import { defineKind } from "./kind.ts"
import { asObject, section } from "./manifest-mapping.ts"
import { defaultEnvironment, EnvironmentSlug, Name } from "./names.ts"
import { type MeasuredKind, measurements, SignalName } from "./signal.ts"

const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const day = 86_400
/** Of a project. */
export const mostAlerts = 1_000
const mostChannels = 10
/** With a channel of kind `mail`. */
const leastMailCooldownSeconds = 300

export const Severity = Schema.Literals(["info", "warning", "critical"]).annotate({
  identifier: "AlertSeverity"
})
export const Operator = Schema.Literals(["gt", "gte", "lt", "lte", "eq"]).annotate({
  identifier: "AlertOperator",
  description: "How the value stands to the threshold while the condition holds"
})

/** Which kind of resource each field of a scope names. */
export const scopeKinds = { database: "Database", queue: "Queue", cron: "Cron" } as const satisfies Readonly<
  Record<string, MeasuredKind>
>
const namingFields = ["database", "queue", "cron"] as const satisfies ReadonlyArray<keyof typeof scopeKinds>

const named = (what: string) =>
  withDefault(Schema.NullOr(Name), null, `${what} of that environment; null names none`)
const scopeFields = {
  environment: withDefault(
    Schema.NullOr(EnvironmentSlug),
    null,
    "Resources of this environment alone; null: of all, or of production where a resource is named"
  ),
  database: named("A database"),
  queue: named("A queue"),
  cron: named("A cron job")
}
const completeScope = Schema.toType(Schema.Struct(scopeFields))
export type AlertScope = typeof completeScope.Type

/** A name alone means the one in the default environment. */
const inEnvironment = (scope: AlertScope): AlertScope =>
  scope.environment === null && namingFields.some((field) => scope[field] !== null)
    ? { ...scope, environment: defaultEnvironment }
    : scope

export const AlertScope = Schema.Struct(scopeFields)
  .pipe(
    Schema.decodeTo(completeScope, {
      decode: SchemaGetter.transform(inEnvironment),
      encode: SchemaGetter.passthrough()
    })
  )
  .annotate({ identifier: "AlertScope" })

export const AlertCondition = Schema.Struct({
  signal: SignalName.annotateKey({ description: "What is measured and held against the threshold" }),
  operator: withDefault(Operator, "gte"),
  threshold: withDefault(
    Schema.NullOr(Schema.Finite),
    null,
    "In the unit of the signal; null: the usual one of the signal, where it has one"
  ),
  durationSeconds: withDefault(
    integer(0, 30 * day),
    60,
    "How long the condition has to hold before the alert fires"
  )
})
  .check(
    Schema.makeFilter(
      (condition: { readonly signal: keyof typeof measurements; readonly threshold: number | null }) =>
        thresholdOf(condition) === undefined
          ? { path: ["threshold"], issue: `is needed: ${condition.signal} has no usual threshold` }
          : undefined
    )
  )
  .annotate({ identifier: "AlertCondition" })
export type AlertCondition = typeof AlertCondition.Type

/** Undefined: the condition has none, and its signal no usual one. */
export const thresholdOf = ({
  signal,
  threshold
}: {
  readonly signal: keyof typeof measurements
  readonly threshold: number | null
}): number | undefined => threshold ?? measurements[signal].usualThreshold

/** Addresses as accounts have them: whether a member has it is asked when there is something to send. */
const Address = Schema.String.check(
  Schema.isMaxLength(254),
  Schema.isPattern(/^[^\s@]{1,64}@[^\s@]{1,189}$/u, { expected: "an e-mail address" })
)
export const AlertChannel = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("dashboard"), destination: Schema.Null }),
  Schema.Struct({
    kind: Schema.Literal("mail"),
    destination: Schema.NullOr(Address).annotateKey({
      description: "The address of a member of the organization; null: all owners and admins"
    })
  }),
  Schema.Struct({
    kind: Schema.Literal("webhook"),
    destination: Schema.Null.annotateKey({
      description: "Every webhook of the organization that wants alert.firing or alert.resolved"
    })
  })
]).annotate({ identifier: "AlertChannel" })

export const AlertSpec = Schema.Struct({
  enabled: withDefault(Schema.Boolean, true, "Whether it watches"),
  severity: Severity.annotateKey({ description: "Told along with it; it changes nothing else" }),
  scope: AlertScope,
  condition: AlertCondition,
  channels: withDefault(
    Schema.Array(AlertChannel).check(Schema.isMaxLength(mostChannels), Schema.isUnique()),
    [{ kind: "dashboard", destination: null }],
    "Where it is told; its history is kept in any case"
  ),
  cooldownSeconds: withDefault(
    integer(0, 30 * day),
    300,
    `How long after it was told that the alert fires it is not told again; at least ${leastMailCooldownSeconds} with mail`
  )
})
  .check(
    Schema.makeFilter(
      ({ scope, condition }: { readonly scope: AlertScope; readonly condition: AlertCondition }) => {
        const { kinds } = measurements[condition.signal]
        const given = namingFields.filter((field) => scope[field] !== null)
        return given.length === 0 || given.some((field) => kinds.includes(scopeKinds[field]))
          ? undefined
          : {
              path: ["scope", given[0] ?? "environment"],
              issue: `names what has no ${condition.signal}: that is measured of ${kinds.join(", ")}`
            }
      }
    )
  )
  .check(
    Schema.makeFilter(
      ({
        channels,
        cooldownSeconds
      }: {
        readonly channels: ReadonlyArray<{ readonly kind: string; readonly destination: string | null }>
        readonly cooldownSeconds: number
      }) => {
        const mails = channels.flatMap(({ kind, destination }) =>
          kind === "mail" ? [destination?.toLowerCase() ?? null] : []
        )
        if (new Set(mails).size < mails.length)
          return { path: ["channels"], issue: "name an address twice, in other letters" }
        return mails.length > 0 && cooldownSeconds < leastMailCooldownSeconds
          ? {
              path: ["cooldownSeconds"],
              issue: `must be at least ${leastMailCooldownSeconds} where mail is sent`
            }
          : undefined
      }
    )
  )
  .annotate({ identifier: "AlertSpec" })
export type AlertSpec = typeof AlertSpec.Type
/** What users may give of an alert, besides its name. */
export const AlertInput = inputOf(AlertSpec)

export const AlertStatus = Schema.Struct({
  /** Whether it watches: false for an alert that is switched off. */
  watching: Schema.Boolean
}).annotate({ identifier: "AlertStatus" })
export type AlertStatus = typeof AlertStatus.Type

const entry = Schema.Struct({
  name: DisplayName.annotateKey({ description: "Unique among the alerts of the project" }),
  ...AlertInput.fields,
  scope: AlertInput.fields.scope.annotateKey({
    description: "What it watches: what is named; where nothing is, all of the environment or the project"
  }),
  // Without one the document can be read; a plan says that it is missing.
  condition: Schema.optionalKey(AlertInput.fields.condition).annotateKey({
    description: "It holds when it holds for any resource of the scope"
  })
})

const reference = (field: keyof AlertScope, kind: string) => ({
  path: `/scope/${field}`,
  kind,
  by: "name" as const,
  ...(field === "environment" ? {} : { environment: "/scope/environment" }),
  // What is watched may go, and come later.
  required: false,
  listed: true
})

export const Alert = defineKind({
  name: "Alert",
  summary: "Watches a signal of the project's resources and tells when it is out of bounds.",
  scope: "project",
  spec: AlertSpec,
  status: AlertStatus,
  fields: Object.keys(AlertSpec.fields),
  immutable: [],
  internal: [],
  generated: [],
  references: [
    reference("environment", "Environment"),
    ...namingFields.map((field) => reference(field, scopeKinds[field]))
  ],
  singleton: false,
  deleteRole: "admin",
  reasons: {
    ScopeMissing: warning("What its scope names is not there; it watches that as soon as it is"),
    SignalUnavailable: warning("Nothing measures its signal, so that it never fires"),
    RecipientUnknown: warning("Mail goes to members only, and an address of its channels is of none")
  },
  manifest: section({
    section: "alerts",
    fields: {
      alerts: Schema.optionalKey(Schema.Array(entry).check(Schema.isMaxLength(mostAlerts))).annotateKey({
        description: "Rules that watch signals of the project's resources"
      })
    },
    entries: ({ alerts }) =>
      alerts?.map(({ name, ...spec }, index) => ({
        path: ["alerts", index],
        environment: null,
        name,
        spec: { ...spec, scope: { ...inEnvironment({ ...nobody, ...spec.scope }) } }
      })),
    assemble: (resources) =>
      resources.length === 0
        ? {}
        : { alerts: resources.map(({ name, spec }) => ({ name, ...asObject(spec) })) }
  }),
  deadlineSeconds: 60
})

const nobody: AlertScope = { environment: null, database: null, queue: null, cron: null }
