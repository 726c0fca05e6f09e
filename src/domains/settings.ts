import * as net from "node:net"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import { atLeastOne, list } from "#src/settings.ts"

/** Custom domains: who is asked what DNS says, and how much. */
export const settings = Config.all({
  /** Name servers as `address` or `address:port`, an IPv6 address in brackets. Empty: those of the system. */
  dnsServers: Config.String("SVC_DNS_SERVERS").pipe(
    Config.map(list),
    Config.withDefault<ReadonlyArray<string>>([]),
    Config.flatMap((servers) => {
      const wrong = servers.find((server) => !isServer(server))
      return wrong === undefined
        ? Config.succeed(servers)
        : Config.fail(
            new ConfigProvider.SourceError({
              message: `SVC_DNS_SERVERS must be addresses such as 192.0.2.53 or [2001:db8::53]:53: "${wrong}" is none`
            })
          )
    })
  ),
  /** What one organization's domains may ask them in a minute, in all processes together. */
  orgQuestions: atLeastOne("SVC_ORG_DNS_QUESTIONS", 1_200)
})

const isServer = (text: string): boolean => {
  const [, bracketed, plain, port = "53"] =
    /^(?:\[([0-9a-f:.]+)\]|([0-9.]+))(?::(\d{1,5}))?$/i.exec(text) ?? []
  if (bracketed === undefined && plain === undefined) return net.isIPv6(text)
  const known = bracketed === undefined ? net.isIPv4(plain ?? "") : net.isIPv6(bracketed)
  return known && Number(port) >= 1 && Number(port) <= 65_535
}
