/** A sign-in that many processes share. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { until } from "#test/setup/wait.ts"
import { authorizationServer } from "./authorization-server.ts"
import { newUser } from "./svc.ts"

it.live("processes refresh once; one that is killed while it does so keeps nobody else from it", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    const login = user.start(["login", "--no-browser", "--api-url", server.url])
    yield* Effect.promise(() => login.says(/authorize\S+/))
    const asked = /^ +(http\S+authorize\S+)$/m.exec(login.stderr())?.[1] ?? ""
    yield* Effect.promise(() => fetch(server.answer(new URL(asked))))
    const signedIn = yield* Effect.promise(() => login.ended)
    assert.deepStrictEqual([signedIn.code, signedIn.stdout], [0, ""], signedIn.stderr)

    const folder = path.join(path.dirname(user.credentialsFile), "tokens")
    const [name = ""] = fs.readdirSync(folder)
    const file = path.join(folder, name)
    const expire = () =>
      fs.writeFileSync(file, JSON.stringify({ ...JSON.parse(fs.readFileSync(file, "utf8")), expiresAt: 0 }))

    expire()
    const all = yield* Effect.all(
      Array.from({ length: 6 }, () => user.program(["api", "GET", "/v1/me"])),
      { concurrency: "unbounded" }
    )
    assert.deepStrictEqual(
      all.map(({ code }) => code),
      all.map(() => 0),
      all.map(({ stderr }) => stderr).join("")
    )
    assert.strictEqual(server.refreshes, 1)

    expire()
    server.fault = "hangs"
    const killed = user.start(["whoami"])
    yield* Effect.promise(() => until("its request", () => server.refreshes === 2))
    // Whoever waits for it finds it gone.
    const waiting = user.start(["whoami"])
    killed.child.kill("SIGKILL")
    yield* Effect.promise(() => killed.ended)
    server.fault = undefined
    const after = yield* Effect.promise(() => waiting.ended)
    assert.strictEqual(after.code, 0, after.stderr)
    assert.strictEqual(server.refreshes, 3)
    assert.deepStrictEqual(fs.readdirSync(folder), [name])
  }).pipe(Effect.scoped)
)
