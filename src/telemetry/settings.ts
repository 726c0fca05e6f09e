import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Redacted from "effect/Redacted"
import { atLeastOne } from "#src/settings.ts"

const keyBytes = 32

/** Its value is not repeated in what is said about it. */
const key = Config.Redacted("SVC_TELEMETRY_KEY").pipe(
  Config.flatMap((value) => {
    const bytes = Buffer.from(Redacted.value(value), "base64")
    return bytes.length >= keyBytes
      ? Config.succeed(Redacted.make(bytes))
      : Config.fail(
          new ConfigProvider.SourceError({
            message: `SVC_TELEMETRY_KEY must be base64 of at least ${keyBytes} bytes`
          })
        )
  }),
  Config.withDefault(undefined)
)

export const settings = Config.all({
  /** What ids are digested with. Undefined: no telemetry is taken. */
  key,
  /** Requests a minute, from everybody together and from one network. */
  perMinute: atLeastOne("SVC_TELEMETRY_PER_MINUTE", 600),
  networkPerMinute: atLeastOne("SVC_TELEMETRY_NETWORK_PER_MINUTE", 30)
})
