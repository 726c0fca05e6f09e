/** How clients are told of managed servers. Passwords are of letters that need no escaping in a URL. */
import * as Redacted from "effect/Redacted"

export const postgresUrl = (
  server: { readonly user: string; readonly host: string; readonly port: number; readonly dbName: string },
  password: Redacted.Redacted
): string =>
  `postgres://${server.user}:${Redacted.value(password)}@${server.host}:${server.port}/${server.dbName}?sslmode=verify-full`

export const redisUrl = (
  server: { readonly user: string; readonly host: string; readonly port: number },
  password: Redacted.Redacted
): string => `rediss://${server.user}:${Redacted.value(password)}@${server.host}:${server.port}`
