/** A user of the command line who is signed in to a real control plane, which all tests of a file share. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Settings } from "#src/config.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { newUser, type User } from "./svc.ts"

export class Operator extends Context.Service<
  Operator,
  User & {
    /** Writes a manifest into the folder and answers its name. */
    readonly manifest: (text: string) => string
  }
>()("test/Operator") {}

export const signedIn = (
  settings: Partial<Settings> = {},
  variables: Readonly<Record<string, string>> = {}
) =>
  Layer.effect(
    Operator,
    Effect.gen(function* () {
      const { url, apiKey, session } = yield* Plane
      const user = yield* newUser
      user.signIn({ apiUrl: url, organization: "main", apiKey, session })
      let count = 0
      return {
        ...user,
        manifest: (text) => {
          const name = `manifest-${++count}.yaml`
          fs.writeFileSync(path.join(user.cwd, name), text)
          return name
        }
      }
    })
  ).pipe(Layer.provideMerge(testPlane(settings, variables)))
