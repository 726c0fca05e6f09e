/** `svc admin`: what whoever operates the machine does in the state store itself. The control plane may run meanwhile. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { type Bootstrap, CredentialsNotKept, Keeper, reissue } from "#src/access/bootstrap.ts"
import { AppConfig } from "#src/config.ts"
import { rotateKeys } from "#src/store/sealed.ts"
import { credentialsFile, replaceEntry } from "./credentials.ts"
import { CliFailure, exitCodes, failure } from "./failure.ts"
import { localConfig } from "./local-config.ts"
import { dataIsIn, machine, store } from "./local-store.ts"
import { json, say } from "./output.ts"

/** Where the control plane of this machine is reached from this machine. */
export const localUrl = Effect.map(AppConfig, ({ host, port }) => {
  const reachable = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host
  const name = reachable === "localhost" ? "127.0.0.1" : reachable
  return `http://${name.includes(":") ? `[${name}]` : name}:${port}`
})

/** The stored form of what was issued. */
export const entryOf = (apiUrl: string, { organization, apiKey, session }: Bootstrap) => ({
  apiUrl,
  organization,
  apiKey: Redacted.value(apiKey),
  session: Redacted.value(session)
})

/** Runs against the store itself. */
export const onStore = <A, E extends { readonly _tag: string; readonly message: string }, R>(
  self: Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const { dataDir, databaseUrl } = yield* AppConfig
    if (databaseUrl === undefined && !(yield* dataIsIn(dataDir))) {
      return yield* failure(
        `There is no state store in ${dataDir}; run this where svc up runs, or set SVC_DATA_DIR or SVC_DATABASE_URL`,
        exitCodes.notFound
      )
    }
    return yield* self.pipe(Effect.provide(store), Effect.provide(machine))
  }).pipe(
    Effect.provide(localConfig),
    Effect.mapError((error) => (error instanceof CliFailure ? error : failure(error.message)))
  )

export const credentials = (flags: { readonly org: string; readonly json: boolean }) =>
  onStore(
    Effect.gen(function* () {
      const apiUrl = yield* localUrl
      const made = yield* reissue(flags.org).pipe(
        Effect.provideService(Keeper, (issued) =>
          Effect.mapError(
            replaceEntry(entryOf(apiUrl, issued)),
            ({ message }) => new CredentialsNotKept({ message })
          )
        )
      )
      if (made === undefined) {
        return yield* failure(`There is no organization "${flags.org}" with an owner`, exitCodes.notFound)
      }
      if (flags.json)
        return yield* json({ apiUrl, organization: made.organization, file: yield* credentialsFile })
      yield* say(
        `A new API key and a new owner's session for "${made.organization}" at ${apiUrl} are stored in ${yield* credentialsFile} (mode 0600)`,
        "This link signs the owner in in a browser, once and within a day:",
        `  ${Redacted.value(made.signInUrl)}`
      )
    })
  )

export const rotate = (flags: { readonly json: boolean }) =>
  onStore(
    Effect.gen(function* () {
      const done = yield* rotateKeys((resealed) => say(`${resealed} values sealed anew`))
      yield* flags.json
        ? json(done)
        : say(
            `Everything that opens is sealed with the key "${done.keyId}" now (${done.resealed} values were not)`
          )
      if (done.unreadable.length > 0) {
        return yield* failure(
          `No key of the ring opens these, so they stay as they are:\n${done.unreadable.map((place) => `  ${place}`).join("\n")}`
        )
      }
      if (done.remaining > 0) {
        return yield* failure(
          `${done.remaining} values were sealed with another key meanwhile: a control plane runs with an older ring. Restart it with the new one, then repeat this`
        )
      }
      if (!flags.json)
        yield* say("Older keys may be removed from the ring once every control plane has the new one")
    })
  )
