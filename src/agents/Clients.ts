/**
 * Programs that ask for access. None of them has a secret: what tells one from another is where its answers may go. One is
 * ours, registered itself, or is known by the address of a document about itself (`client-documents.ts`).
 *
 * A registration (RFC 7591) is not stored: the client id is its content and a MAC of it. A flood of them fills nothing,
 * and none is ever forgotten, which programs that keep theirs for ever count on.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { toDisplayName } from "#schemas/display-text.ts"
import type { Audience } from "#src/access/CurrentAudience.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { clientDocuments, isDocumentAddress } from "./client-documents.ts"
import { ClientUnknown } from "./errors.ts"
import { mayRedirectTo } from "./redirects.ts"
import { settings } from "./settings.ts"

export interface Client {
  readonly id: string
  /** For people. Only that of a client of ours is known to be true. */
  readonly name: string
  readonly redirectUris: ReadonlyArray<string>
  readonly audience: Audience
}

/** What is ours. Their answers go to this machine, at a port that they choose when they ask. */
const firstParty: ReadonlyMap<string, Client> = new Map(
  [
    { id: "svc-cli", name: "svc command line", audience: "api" as const },
    { id: "svc-mcp", name: "svc MCP bridge", audience: "mcp" as const }
  ].map((client) => [client.id, { ...client, redirectUris: ["http://127.0.0.1/callback"] }])
)

export const isFirstParty = (clientId: string): boolean => firstParty.has(clientId)

/** Bytes of the longest client id that is looked at. */
const longestId = 2_000
export const mostRedirects = 5
const registeredForm = /^svcd\.([\w-]+)\.([\w-]{43})$/

const Registration = Schema.fromJsonString(
  Schema.Struct({ name: Schema.String, redirectUris: Schema.Array(Schema.String) })
)
const encodeRegistration = Schema.encodeSync(Registration)
const decodeRegistration = Schema.decodeUnknownOption(Registration)

const unknown = new ClientUnknown({
  message:
    "The program that sent you here is not known. Remove its sign-in there and begin anew, so that it registers again."
})

export class Clients extends Context.Service<
  Clients,
  {
    readonly find: (id: string) => Effect.Effect<Client, ClientUnknown>
    /** Undefined: the answers of clients may not go to one of these addresses, or it is too much. */
    readonly register: (name: string, redirectUris: ReadonlyArray<string>) => Client | undefined
  }
>()("svc/agents/Clients") {
  static readonly layer = Layer.effect(
    Clients,
    Effect.gen(function* () {
      const platform = yield* PlatformSecrets
      const { redirectSchemes } = yield* settings
      const key = yield* platform.ensure(
        "agent-client-key",
        Effect.sync(() => Redacted.make(randomBytes(32).toString("base64")))
      )
      const mac = (content: string) =>
        createHmac("sha256", Redacted.value(key)).update(`client ${content}`).digest("base64url")

      const documents = yield* clientDocuments

      /** The list of addresses that are let in may have become shorter since, and documents name what they like. */
      const clientOf = (id: string, name: string, redirectUris: ReadonlyArray<string>): Client => ({
        id,
        name: toDisplayName(name) || "A program without a name",
        redirectUris: redirectUris.filter((uri) => mayRedirectTo(uri, redirectSchemes)),
        audience: "mcp"
      })

      const registered = (id: string): Client | undefined => {
        const [, content, given] = registeredForm.exec(id) ?? []
        if (content === undefined || given === undefined) return undefined
        if (!timingSafeEqual(Buffer.from(mac(content)), Buffer.from(given))) return undefined
        const decoded = decodeRegistration(Buffer.from(content, "base64url").toString("utf8"))
        return Option.isNone(decoded)
          ? undefined
          : clientOf(id, decoded.value.name, decoded.value.redirectUris)
      }

      return Clients.of({
        find: Effect.fn("Clients.find")(function* (id) {
          if (id.length > longestId) return yield* unknown
          const known = firstParty.get(id) ?? registered(id)
          if (known !== undefined) return known
          if (!isDocumentAddress(id)) return yield* unknown
          const { client_name: name = new URL(id).host, redirect_uris } = yield* documents(id)
          return clientOf(id, name, redirect_uris)
        }),
        register: (text, redirectUris) => {
          if (redirectUris.length === 0 || redirectUris.length > mostRedirects) return undefined
          if (!redirectUris.every((uri) => mayRedirectTo(uri, redirectSchemes))) return undefined
          const { name } = clientOf("", text, [])
          const content = Buffer.from(encodeRegistration({ name, redirectUris })).toString("base64url")
          const id = `svcd.${content}.${mac(content)}`
          return id.length > longestId ? undefined : clientOf(id, name, redirectUris)
        }
      })
    })
  )
}
