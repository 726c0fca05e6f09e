/**
 * Programs that ask for access. None of them has a secret: what tells one from another is where its answers may go.
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
import type { StoreUnavailable } from "#src/store-unavailable.ts"
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

export class Clients extends Context.Service<
  Clients,
  {
    /** None: nobody is known by that id. */
    readonly find: (id: string) => Effect.Effect<Option.Option<Client>, StoreUnavailable>
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

      const registered = (id: string): Option.Option<Client> => {
        const [, content, given] = registeredForm.exec(id) ?? []
        if (content === undefined || given === undefined) return Option.none()
        if (!timingSafeEqual(Buffer.from(mac(content)), Buffer.from(given))) return Option.none()
        return Option.map(
          decodeRegistration(Buffer.from(content, "base64url").toString("utf8")),
          ({ name, redirectUris }): Client => ({
            id,
            name,
            // The list of what is let in may have become shorter since.
            redirectUris: redirectUris.filter((uri) => mayRedirectTo(uri, redirectSchemes)),
            audience: "mcp"
          })
        )
      }

      return Clients.of({
        find: Effect.fn("Clients.find")(function* (id) {
          if (id.length > longestId) return Option.none()
          const own = firstParty.get(id)
          return own === undefined ? registered(id) : Option.some(own)
        }),
        register: (text, redirectUris) => {
          if (redirectUris.length === 0 || redirectUris.length > mostRedirects) return undefined
          if (!redirectUris.every((uri) => mayRedirectTo(uri, redirectSchemes))) return undefined
          const name = toDisplayName(text) || "A program without a name"
          const content = Buffer.from(encodeRegistration({ name, redirectUris })).toString("base64url")
          const id = `svcd.${content}.${mac(content)}`
          return id.length > longestId ? undefined : { id, name, redirectUris, audience: "mcp" }
        }
      })
    })
  )
}
