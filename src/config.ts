/**
 * The settings of a process that several of its parts share, read once from the environment; those of one feature are
 * in its folder. `docs/operating/settings.md` explains each of them.
 */
import * as net from "node:net"
import * as path from "node:path"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { localRegion, Region } from "#schemas/catalog.ts"
import { isRange } from "./address-ranges.ts"
import { defaultDataDir } from "./data-dir.ts"
import { list, optional } from "./settings.ts"

/**
 * What a process does: answer requests to the API, converge resources and run the loops beside it, or serve the apps'
 * addresses with an edge of its own.
 */
export type Role = "api" | "engine" | "edge"

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
  readonly roles: ReadonlySet<Role>
  /** Of a process that has the roles `api` and `engine`: whether the engine has a thread of its own. */
  readonly engineThread: "own" | "shared"
  /** The region of the machine that this process runs on: what is placed there is this process's to work on. */
  readonly region: string
  /** Host that connection strings of managed servers name, and the address they listen on. */
  readonly managedHost: string
  /**
   * Under which name and address containers of environments reach managed servers and the API of this machine. Absent:
   * they do not.
   */
  readonly services: { readonly name: string; readonly address: string } | undefined
  /** Where another process of this machine answers requests to the API; absent: this process does, or another machine. */
  readonly localApi: { readonly host: string; readonly port: number } | undefined
  /** Networks of containers of environments are pieces of it: an IPv4 range of 65,536 addresses. */
  readonly environmentRange: string
  /** Ports that managed servers get, both ends included. */
  readonly managedPorts: { readonly first: number; readonly last: number }
  /** Whether managed servers run within limits: where that is possible, or not at all without them, or never. */
  readonly serverLimits: "auto" | "required" | "off"
  /** Requests a minute for one credential. */
  readonly rateLimit: number
  /** Whether the API's queries run under row-level security. */
  readonly rowSecurity: boolean
  /** Base URL of an OTLP/HTTP collector. Absent: no export. */
  readonly otlpUrl: string | undefined
  readonly logFormat: "pretty" | "json"
  readonly logLevel: "Error" | "Warn" | "Info" | "Debug" | "Trace"
  /** Providers that people may sign in with, besides a password and a link by mail. */
  readonly oidcProviders: ReadonlyArray<OidcProvider>
  /** Tries to sign in a minute from one address. */
  readonly signInRateLimit: number
  /** Who may make an account: anybody, or whoever has an open invitation. */
  readonly signUp: "open" | "invited"
  /** Reverse proxies of ours that a request passes: so many entries of `X-Forwarded-For` are to be believed. */
  readonly proxies: number
  /** Of the container engine, a path or `unix://` URL; `none` for no engine. Absent: it is looked for. */
  readonly containerSocket: string | undefined
  /** Whether containers need firewall rules that this process sets; off: whoever operates it keeps them away himself. */
  readonly executionFirewall: "required" | "off"
  /** Whether containers get user namespaces of their own: where that is possible, or nothing runs without, or never. */
  readonly userNamespaces: "auto" | "required" | "off"
}

/** An OpenID Connect provider. */
export interface OidcProvider {
  /** In paths: `/v1/auth/oidc/<id>`. */
  readonly id: string
  /** On the button. */
  readonly name: string
  readonly issuer: string
  readonly clientId: string
  readonly clientSecret: Redacted.Redacted
}

/**
 * Lists, of which an empty value means something: that there are none. Of any other variable it means nothing, and counts
 * as one that is not set, as in a compose file with `VAR=`.
 */
const lists: ReadonlySet<string> = new Set([
  "SVC_OUTBOUND_ALLOW",
  "SVC_REGISTRIES",
  "SVC_BUILD_IMAGE",
  "SVC_ROLES"
])

/** By itself the provider takes every empty value for one that is missing. */
const provider = (env: Readonly<Record<string, string | undefined>>) =>
  ConfigProvider.fromEnv({
    env: Object.fromEntries(
      Object.entries(env).flatMap(([name, value]) =>
        value === undefined || (value === "" && !lists.has(name)) ? [] : [[name, value]]
      )
    ),
    preserveEmptyStrings: true
  })

const isRole = Schema.is(Schema.Literals(["api", "engine", "edge"]))

const isHttps = /^https:\/\/|^http:\/\/(127\.0\.0\.1|localhost|\[::1\])(:|\/|$)/
/** JSON, in one variable, because it holds secrets. */
const OidcProviders = Schema.fromJsonString(
  Schema.Array(
    Schema.Struct({
      id: Schema.String.check(Schema.isPattern(/^[a-z][a-z0-9-]{0,30}$/)),
      name: Schema.NonEmptyString,
      issuer: Schema.String.check(Schema.isPattern(isHttps, { expected: "an https:// URL" })),
      clientId: Schema.NonEmptyString,
      clientSecret: Schema.NonEmptyString
    })
  )
)
/** The value of a variable that holds secrets is not repeated in what is said about it. */
const oidcProviders = Config.Redacted("SVC_OIDC_PROVIDERS").pipe(
  Config.flatMap((value) => {
    const decoded = Schema.decodeUnknownOption(OidcProviders)(Redacted.value(value))
    return Option.isSome(decoded)
      ? Config.succeed(
          decoded.value.map(
            (one): OidcProvider => ({ ...one, clientSecret: Redacted.make(one.clientSecret) })
          )
        )
      : Config.fail(
          new ConfigProvider.SourceError({
            message:
              'SVC_OIDC_PROVIDERS must be a JSON list of {"id", "name", "issuer" (https), "clientId", "clientSecret"}'
          })
        )
  }),
  Config.withDefault([])
)

const levels = { error: "Error", warn: "Warn", info: "Info", debug: "Debug", trace: "Trace" } as const

/** An address that nothing has: rules of the firewall lead from there to where services listen. */
const servicesAddress = Config.String("SVC_SERVICES_ADDRESS").pipe(
  Config.withDefault("198.19.255.1"),
  Config.flatMap((address) =>
    address === "off" || (net.isIPv4(address) && !/^(0|127|169\.254|22[4-9]|23\d)\./.test(address))
      ? Config.succeed(address === "off" ? undefined : address)
      : Config.fail(
          new ConfigProvider.SourceError({
            message: `SVC_SERVICES_ADDRESS must be an IPv4 address that nothing has, such as 198.19.255.1, or off: "${address}" is neither`
          })
        )
  )
)

const localApi = optional("SVC_LOCAL_API").pipe(
  Config.flatMap((place) => {
    if (place === undefined) return Config.succeed(undefined)
    const [, given = "", digits = ""] = /^(\[[^\]]+\]|[^:]+):(\d{1,5})$/.exec(place) ?? []
    const host = given.replace(/^\[|\]$/g, "")
    const port = Number(digits)
    return host !== "" && port > 0 && port < 65_536
      ? Config.succeed({ host, port })
      : Config.fail(
          new ConfigProvider.SourceError({
            message: `SVC_LOCAL_API must be a host and a port of this machine, such as 127.0.0.1:8787: "${place}" is none`
          })
        )
  })
)

/** Podman gives pieces of 10.89.0.0/16 to containers of all others. */
const environmentRange = Config.String("SVC_ENVIRONMENT_RANGE").pipe(
  Config.withDefault("10.219.0.0/16"),
  Config.flatMap((range) => {
    const [address = "", isWhole] = range.split(/(?<=\.0\.0)\/16$/)
    return isWhole === "" &&
      net.isIPv4(address) &&
      !/^(0|127|169\.254|10\.89|22[4-9]|2[3-5]\d)\./.test(address)
      ? Config.succeed(range)
      : Config.fail(
          new ConfigProvider.SourceError({
            message: `SVC_ENVIRONMENT_RANGE must be a range of IPv4 addresses that nothing else has, such as 10.219.0.0/16: "${range}" is none`
          })
        )
  })
)

/** A host name is used inside of containers as it is outside, but what means this machine there means the container. */
const servicesName = (managedHost: string): string =>
  net.isIP(managedHost) !== 0 || /(^|\.)localhost$/i.test(managedHost) ? "services.svc.internal" : managedHost

const Proxies = Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 0, maximum: 10 }))

const port = (name: string, fallback: number) => Config.Port(name).pipe(Config.withDefault(fallback))
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
    Config.map(list),
    Config.flatMap((ranges) => {
      const wrong = ranges.find((range) => !isRange(range))
      return wrong === undefined
        ? Config.succeed(ranges)
        : Config.fail(
            new ConfigProvider.SourceError({
              message: `SVC_OUTBOUND_ALLOW must be ranges such as 10.0.0.0/8,fd00::/8: "${wrong}" is none`
            })
          )
    })
  ),
  roles: Config.String("SVC_ROLES").pipe(
    Config.withDefault("api,engine,edge"),
    Config.map(list),
    Config.flatMap((names) => {
      const roles = new Set(names.filter(isRole))
      // A process without a role would do nothing and say nothing.
      return roles.size > 0 && names.every(isRole)
        ? Config.succeed<ReadonlySet<Role>>(roles)
        : Config.fail(
            new ConfigProvider.SourceError({ message: `SVC_ROLES must be some of "api,engine,edge"` })
          )
    })
  ),
  engineThread: Config.schema(Schema.Literals(["own", "shared"]), "SVC_ENGINE_THREAD").pipe(
    Config.withDefault("shared" as const)
  ),
  region: Config.schema(Region, "SVC_REGION").pipe(Config.withDefault(localRegion)),
  managedHost: Config.String("SVC_MANAGED_HOST").pipe(Config.withDefault("127.0.0.1")),
  servicesAddress,
  environmentRange,
  localApi,
  // Below the range that systems hand out to clients.
  managedPorts: Config.String("SVC_MANAGED_PORTS").pipe(
    Config.withDefault("20000-29999"),
    Config.flatMap((range) => {
      const [, first = 0, last = 0] = (/^(\d{4,5})-(\d{4,5})$/.exec(range) ?? []).map(Number)
      return 1024 <= first && first <= last && last <= 65_535
        ? Config.succeed({ first, last })
        : Config.fail(
            new ConfigProvider.SourceError({
              message: `SVC_MANAGED_PORTS must be a range such as 20000-29999: "${range}" is none`
            })
          )
    })
  ),
  serverLimits: Config.schema(Schema.Literals(["auto", "required", "off"]), "SVC_SERVER_LIMITS").pipe(
    Config.withDefault("auto" as const)
  ),
  rateLimit: Config.Int("SVC_RATE_LIMIT").pipe(Config.withDefault(600)),
  rowSecurity: Config.Boolean("SVC_ROW_SECURITY").pipe(Config.withDefault(true)),
  otlpUrl: optional("SVC_OTLP_URL"),
  logFormat: Config.schema(Schema.Literals(["pretty", "json"]), "SVC_LOG_FORMAT").pipe(
    Config.withDefault("pretty" as const)
  ),
  logLevel: Config.schema(Schema.Literals(["error", "warn", "info", "debug", "trace"]), "SVC_LOG_LEVEL").pipe(
    Config.withDefault("info" as const),
    Config.map((level) => levels[level])
  ),
  oidcProviders,
  signInRateLimit: Config.Int("SVC_SIGN_IN_RATE_LIMIT").pipe(Config.withDefault(30)),
  signUp: Config.schema(Schema.Literals(["open", "invited"]), "SVC_SIGN_UP").pipe(
    Config.withDefault("open" as const)
  ),
  proxies: Config.schema(Proxies, "SVC_PROXIES").pipe(Config.withDefault(0)),
  containerSocket: Config.String("SVC_CONTAINER_SOCKET").pipe(
    Config.orElse(() => Config.String("DOCKER_HOST")),
    Config.withDefault(undefined)
  ),
  executionFirewall: Config.schema(Schema.Literals(["required", "off"]), "SVC_EXECUTION_FIREWALL").pipe(
    Config.withDefault("required" as const)
  ),
  userNamespaces: Config.schema(Schema.Literals(["auto", "required", "off"]), "SVC_CONTAINER_USERNS").pipe(
    Config.withDefault("auto" as const)
  )
}).pipe(
  Config.map((config) => {
    const dataDir = config.dataDir ?? defaultDataDir()
    const publicUrl = (config.publicUrl ?? `http://${config.host}:${config.port}`).replace(/\/+$/, "")
    const { servicesAddress: address, ...rest } = config
    const services =
      address === undefined || config.executionFirewall === "off"
        ? undefined
        : { name: servicesName(config.managedHost), address }
    return { ...rest, dataDir, publicUrl, services }
  })
)

/**
 * Whoever provides it decides which variables the process has, for the settings of features too: they are read from the
 * `ConfigProvider` that comes with it.
 */
export class AppConfig extends Context.Service<AppConfig, Settings>()("svc/AppConfig") {
  /** Settings of these variables alone. */
  static readonly layerFrom = (env: Readonly<Record<string, string | undefined>>) =>
    AppConfig.layerWith({}, env)
  /** The environment is read when the layer is built. */
  static readonly layer = Layer.suspend(() => AppConfig.layerFrom(process.env))
  /** Fixed settings over those of some variables, for tests and embedding; the environment is not read. */
  static readonly layerWith = (
    values: Partial<Settings>,
    env: Readonly<Record<string, string | undefined>> = {}
  ) =>
    Layer.effectContext(
      Effect.map(settings.parse(provider(env)), (read) =>
        Context.make(AppConfig, { ...read, ...values }).pipe(
          Context.add(ConfigProvider.ConfigProvider, provider(env))
        )
      )
    )
}
