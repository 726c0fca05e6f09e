import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import { isRange } from "#src/address-ranges.ts"
import { atLeastOne, list } from "#src/settings.ts"

const port = (name: string, fallback: number) => Config.Port(name).pipe(Config.withDefault(fallback))

const ranges = (name: string) =>
  Config.String(name).pipe(
    Config.map(list),
    Config.flatMap((all) => {
      const wrong = all.find((range) => !isRange(range))
      return wrong === undefined
        ? Config.succeed(all)
        : Config.fail(
            new ConfigProvider.SourceError({
              message: `${name} must be ranges such as 10.0.0.0/8,fd00::/8: "${wrong}" is none`
            })
          )
    }),
    Config.withDefault<ReadonlyArray<string>>([])
  )

/** The edge: where it listens, and the names that it gives to environments. */
export const settings = Config.all({
  /** Managed addresses are one label below it. Its default resolves to this machine, in browsers too. */
  appsDomain: Config.String("SVC_APPS_DOMAIN").pipe(
    Config.withDefault("apps.localhost"),
    // Names are compared without regard to case (RFC 1034, section 3.1), and a dot at the end says nothing.
    Config.map((name) => name.trim().toLowerCase().replace(/\.$/, "")),
    Config.flatMap((name) => {
      const message = appsDomainFormFault(name)
      return message === undefined
        ? Config.succeed(name)
        : Config.fail(new ConfigProvider.SourceError({ message }))
    })
  ),
  /** The address that it listens on. */
  host: Config.String("SVC_EDGE_HOST").pipe(Config.withDefault("127.0.0.1")),
  httpsPort: port("SVC_EDGE_HTTPS_PORT", 8443),
  httpPort: port("SVC_EDGE_HTTP_PORT", 8480),
  /** Under which the world reaches it, where that is another one: for domains that can have no CNAME. */
  publicAddresses: Config.String("SVC_EDGE_ADDRESSES").pipe(
    Config.map(list),
    Config.withDefault<ReadonlyArray<string>>([])
  ),
  /** Where the port that the world sees is another than the one that it listens on. */
  publicHttpsPort: Config.Port("SVC_EDGE_PUBLIC_HTTPS_PORT").pipe(Config.withDefault(undefined)),
  /** Load balancers whose connections begin with a header of the PROXY protocol. */
  proxyProtocolFrom: ranges("SVC_EDGE_PROXY_PROTOCOL"),
  /** Reverse proxies whose last entry of `X-Forwarded-For` is the visitor. */
  trustedProxies: ranges("SVC_EDGE_TRUSTED_PROXIES"),
  /** PEM file of the authorities that certificates of outside origins are from. Default: the system's. */
  originAuthorities: Config.String("SVC_EDGE_ORIGIN_CA_FILE").pipe(Config.withDefault("@system-ca")),
  maxConnections: atLeastOne("SVC_EDGE_MAX_CONNECTIONS", 4_000),
  /** From one address; not from those of load balancers and reverse proxies. */
  addressConnections: atLeastOne("SVC_EDGE_ADDRESS_CONNECTIONS", 400),
  /** Until the header of a request is complete. */
  headerSeconds: atLeastOne("SVC_EDGE_HEADER_SECONDS", 10),
  /** Without a byte in either direction. */
  idleSeconds: atLeastOne("SVC_EDGE_IDLE_SECONDS", 300),
  /** The same for WebSockets; also how long a replaced HAProxy keeps them. */
  tunnelSeconds: atLeastOne("SVC_EDGE_WEBSOCKET_IDLE_SECONDS", 14_400),
  /** Until an origin takes a connection. */
  connectSeconds: atLeastOne("SVC_EDGE_CONNECT_SECONDS", 5),
  /** How long a request waits for an app that is asleep, and how many may wait. */
  holdSeconds: atLeastOne("SVC_EDGE_HOLD_SECONDS", 30),
  heldRequests: atLeastOne("SVC_EDGE_HELD_REQUESTS", 1_000)
})

/** Why a name cannot be the apps domain, by its form; undefined: it can. Labels of environments are put before it. */
export const appsDomainFormFault = (name: string): string | undefined =>
  /^(?=.{1,190}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]*$/.test(name)
    ? undefined
    : `SVC_APPS_DOMAIN must be a domain in lower case such as apps.example.net: "${name}" is none`
