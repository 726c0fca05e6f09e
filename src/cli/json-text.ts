/** JSON that somebody wrote on the command line or into standard input. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { deepestJson, tooDeepAt } from "#schemas/json-depth.ts"
import { exitCodes, failure } from "./failure.ts"

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Json))

/** `what` names the text in the message of a failure. */
export const jsonOf = (what: string, text: string) =>
  tooDeepAt(text) === undefined
    ? Effect.mapError(decode(text), () => failure(`${what} is not JSON`, exitCodes.usage))
    : Effect.fail(failure(`${what} is nested deeper than ${deepestJson} levels`, exitCodes.usage))
