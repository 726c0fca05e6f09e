import * as Config from "effect/Config"
import { list, optional } from "#src/settings.ts"

const port = (name: string, fallback: number) => Config.Port(name).pipe(Config.withDefault(fallback))

/** The edge: where it listens, and the names that it gives to environments. */
export const settings = Config.all({
  /** Managed addresses are one label below it. Its default resolves to this machine, in browsers too. */
  appsDomain: Config.String("SVC_APPS_DOMAIN").pipe(Config.withDefault("apps.localhost")),
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
  publicHttpsPort: optional("SVC_EDGE_PUBLIC_HTTPS_PORT")
})
