import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Redacted from "effect/Redacted"
import { optional } from "#src/settings.ts"

/** The value of a variable that holds secrets is not repeated in what is said about it. */
const smtpUrl = Config.Redacted("SVC_SMTP_URL").pipe(
  Config.flatMap((value) =>
    /^smtps?:\/\/[^/]+\/?(\?.*)?$/.test(Redacted.value(value)) && URL.canParse(Redacted.value(value))
      ? Config.succeed(value)
      : Config.fail(
          new ConfigProvider.SourceError({
            message: "SVC_SMTP_URL must look like smtps://user:password@mail.example.com"
          })
        )
  ),
  Config.withDefault(undefined)
)

export const settings = Config.all({
  /** `smtp://` or `smtps://`, with user and password. Absent: mail becomes files in `dir`. */
  smtpUrl,
  /** Absent: an address at the public URL's host. */
  from: optional("SVC_MAIL_FROM"),
  /** Absent: a folder in the data folder. */
  dir: optional("SVC_MAIL_DIR")
})
