/** Who issues the certificates of the edge. */
import * as fs from "node:fs"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { atLeastOne, optional } from "#src/settings.ts"
import { Rfc2136 } from "./dns/rfc2136.ts"

const wrong = (message: string) => Config.fail(new ConfigProvider.SourceError({ message }))

/** What a file says; what a variable names is not repeated, since it may be meant as the content. */
const fileOf = (variable: string, file: string): Config.Config<string> => {
  try {
    return Config.succeed(fs.readFileSync(file, "utf8"))
  } catch {
    return wrong(`${variable} names a file that cannot be read`)
  }
}

const isDirectory = /^https:\/\/[^\s]+$|^http:\/\/(127\.0\.0\.1|localhost|\[::1\])(:|\/)/
const directory = optional("SVC_ACME_DIRECTORY").pipe(
  Config.flatMap((url) =>
    url === undefined || (isDirectory.test(url) && URL.canParse(url))
      ? Config.succeed(url)
      : wrong(
          "SVC_ACME_DIRECTORY must be an https:// URL, such as https://acme-v02.api.letsencrypt.org/directory"
        )
  )
)

const email = optional("SVC_ACME_EMAIL").pipe(
  Config.flatMap((address) =>
    address === undefined || /^[^\s@,?]+@[^\s@,?]+$/.test(address)
      ? Config.succeed(address)
      : wrong("SVC_ACME_EMAIL must be one mail address")
  )
)

const binding = Config.Redacted("SVC_ACME_EAB").pipe(
  Config.withDefault(undefined),
  Config.flatMap((value) => {
    if (value === undefined) return Config.succeed(undefined)
    const [, kid, hmacKey] = /^([^\s:]+):([A-Za-z0-9_-]+)=*$/.exec(Redacted.value(value)) ?? []
    return kid === undefined || hmacKey === undefined
      ? wrong("SVC_ACME_EAB must be the key's id, a colon, and the key in base64url")
      : Config.succeed({ kid, hmacKey: Redacted.make(hmacKey) })
  })
)

const extraCa = optional("SVC_ACME_CA_FILE").pipe(
  Config.flatMap((file) =>
    file === undefined ? Config.succeed(undefined) : fileOf("SVC_ACME_CA_FILE", file)
  )
)

const decodeDns = Schema.decodeUnknownResult(Schema.fromJsonString(Rfc2136), { onExcessProperty: "error" })
const dns = Config.Redacted("SVC_ACME_DNS").pipe(
  Config.withDefault(undefined),
  Config.flatMap((value) => {
    if (value === undefined) return Config.succeed(undefined)
    const given = Redacted.value(value)
    const text = given.trimStart().startsWith("{") ? Config.succeed(given) : fileOf("SVC_ACME_DNS", given)
    return Config.flatMap(text, (json) => {
      const decoded = decodeDns(json)
      // What was found is not repeated: it holds a key.
      return Result.isSuccess(decoded)
        ? Config.succeed(decoded.success)
        : wrong(
            'SVC_ACME_DNS must be JSON, or a file of it: {"provider": "rfc2136", "server", "zone", "keyName", "secret" (base64)} and where they differ "port" (53), "algorithm" (hmac-sha256, -sha384, -sha512), "propagationSeconds" (0)'
          )
    })
  })
)

export interface AcmeSettings {
  readonly directory: string
  readonly email: string | undefined
  readonly binding: { readonly kid: string; readonly hmacKey: Redacted.Redacted } | undefined
  /** Authorities that the directory's own certificate may be from, in PEM, beside those of the system. */
  readonly extraCa: string | undefined
  /** Proves wildcards. */
  readonly dns: Rfc2136 | undefined
  /** Certificates that one organization may order in three hours; as many may be renewed. */
  readonly orgOrders: number
}

export const certificateSettings = Config.all({
  /** Absent: the platform's own authority issues everything. */
  acme: Config.map(
    Config.all({
      directory,
      email,
      binding,
      extraCa,
      dns,
      orgOrders: atLeastOne("SVC_ORG_CERTIFICATE_ORDERS", 50)
    }),
    ({ directory, ...rest }): AcmeSettings | undefined =>
      directory === undefined ? undefined : { directory, ...rest }
  ),
  /** The operator's own certificate for every name below the apps domain: two files in PEM. */
  appsFiles: Config.all({
    chain: optional("SVC_APPS_CERTIFICATE"),
    key: optional("SVC_APPS_CERTIFICATE_KEY")
  }).pipe(
    Config.flatMap(({ chain, key }) => {
      if (chain === undefined && key === undefined) return Config.succeed(undefined)
      return chain === undefined || key === undefined
        ? wrong("SVC_APPS_CERTIFICATE and SVC_APPS_CERTIFICATE_KEY belong together")
        : Config.succeed({ chain, key })
    })
  )
})
