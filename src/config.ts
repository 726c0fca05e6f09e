/** The settings of a process, read once from the environment. `docs/operating.md` explains each of them. */
import * as path from "node:path"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as SchemaGetter from "effect/SchemaGetter"
import { defaultDataDir } from "./infra/dataDir.ts"

export interface Settings {
  /** Absolute path: embedded Postgres, managed servers, certificates. */
  readonly dataDir: string
  readonly host: string
  readonly port: number
  readonly metricsPort: number
  /** Base of the links in answers, without a slash at the end. */
  readonly publicUrl: string
  /** Absent: the embedded Postgres. */
  readonly databaseUrl: Redacted.Redacted | undefined
  /** `id:base64` pairs, comma-separated; the first seals. Absent: a key file in the data folder. */
  readonly encryptionKeys: Redacted.Redacted | undefined
  readonly billing: "open" | "required"
  readonly outboundAllow: ReadonlyArray<string>
  readonly roles: ReadonlySet<"api" | "engine">
  /** Host that connection strings of managed servers name, and the address they listen on. */
  readonly managedHost: string
  /** Requests a minute for one credential. */
  readonly rateLimit: number
  /** Whether the API's queries run under row-level security. */
  readonly rowSecurity: boolean
  /** Base URL of an OTLP/HTTP collector. Absent: no export. */
  readonly otlpUrl: string | undefined
  readonly logFormat: "pretty" | "json"
}

const list = (text: string) =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "")

const Roles = Schema.String.pipe(
  Schema.decodeTo(Schema.NonEmptyArray(Schema.Literals(["api", "engine"])), {
    decode: SchemaGetter.transform((text: string) => list(text) as never),
    encode: SchemaGetter.transform((names: ReadonlyArray<string>) => names.join(","))
  })
)

const port = (name: string, fallback: number) => Config.Port(name).pipe(Config.withDefault(fallback))
const optional = (name: string) => Config.String(name).pipe(Config.withDefault(undefined))
const secret = (name: string) => Config.Redacted(name).pipe(Config.withDefault(undefined))

const settings: Config.Config<Settings> = Config.all({
  dataDir: Config.String("SVC_DATA_DIR").pipe(
    Config.map((dir) => path.resolve(dir)),
    Config.withDefault(undefined)
  ),
  host: Config.String("SVC_HOST").pipe(Config.withDefault("127.0.0.1")),
  port: port("SVC_PORT", 8787),
  metricsPort: port("SVC_METRICS_PORT", 8788),
  publicUrl: optional("SVC_PUBLIC_URL"),
  databaseUrl: secret("SVC_DATABASE_URL"),
  encryptionKeys: secret("SVC_ENCRYPTION_KEYS"),
  billing: Config.schema(Schema.Literals(["open", "required"]), "SVC_BILLING").pipe(
    Config.withDefault("open" as const)
  ),
  outboundAllow: Config.String("SVC_OUTBOUND_ALLOW").pipe(
    Config.withDefault("127.0.0.0/8,::1/128"),
    Config.map(list)
  ),
  roles: Config.schema(Roles, "SVC_ROLES").pipe(
    Config.withDefault(["api", "engine"] as const),
    Config.map((roles): ReadonlySet<"api" | "engine"> => new Set(roles))
  ),
  managedHost: Config.String("SVC_MANAGED_HOST").pipe(Config.withDefault("127.0.0.1")),
  rateLimit: Config.Int("SVC_RATE_LIMIT").pipe(Config.withDefault(600)),
  rowSecurity: Config.Boolean("SVC_ROW_SECURITY").pipe(Config.withDefault(true)),
  otlpUrl: optional("SVC_OTLP_URL"),
  logFormat: Config.schema(Schema.Literals(["pretty", "json"]), "SVC_LOG_FORMAT").pipe(
    Config.withDefault("pretty" as const)
  )
}).pipe(
  Config.map((config) => ({
    ...config,
    dataDir: config.dataDir ?? defaultDataDir(),
    publicUrl: (config.publicUrl ?? `http://${config.host}:${config.port}`).replace(/\/+$/, "")
  }))
)

export class AppConfig extends Context.Service<AppConfig, Settings>()("svc/AppConfig") {
  static readonly layer = Layer.effect(AppConfig, settings)
  /** Fixed settings over the defaults, for tests and embedding; the environment is not read. */
  static readonly layerWith = (values: Partial<Settings>) =>
    Layer.effect(
      AppConfig,
      Effect.map(settings.parse(ConfigProvider.fromEnv({ env: {} })), (defaults) => ({
        ...defaults,
        ...values
      }))
    )
}
