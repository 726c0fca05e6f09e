/** Signing in by browser, and keeping it so. */
import * as fs from "node:fs"
import * as http from "node:http"
import * as path from "node:path"
import { PassThrough } from "node:stream"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { Invocation } from "#src/cli/invocation.ts"
import { OpenBrowser } from "#src/cli/open-browser.ts"
import { runCommand } from "#src/cli/run-command.ts"
import { until } from "#test/setup/wait.ts"
import { authorizationServer, key } from "./authorization-server.ts"
import { newUser, recorded, type User } from "./svc.ts"

/** What a request with these header fields is answered. */
const knock = (url: URL, options: http.RequestOptions = {}) =>
  new Promise<number | undefined>((resolve, reject) => {
    const request = http.request(url, options, (response) => {
      response.resume()
      response.once("end", () => resolve(response.statusCode))
    })
    request.once("error", reject)
    request.end()
  })

const changed = (url: URL, ...parameters: ReadonlyArray<readonly [string, string]>) => {
  const other = new URL(url)
  for (const [name, value] of parameters) other.searchParams.set(name, value)
  return other
}

/** A browser at which somebody answers as told. */
const browser =
  (answer: (asked: URL) => Promise<unknown>): typeof OpenBrowser.Service =>
  (asked) =>
    Effect.sync(() => {
      void answer(asked)
      return true
    })

type Server = Effect.Success<typeof authorizationServer>

const approving = (server: Server) => browser((asked) => fetch(server.answer(asked)))

const signedIn = (user: User, server: Server) =>
  user.svc(["login", "--api-url", server.url]).pipe(Effect.provideService(OpenBrowser, approving(server)))

const folderOf = ({ credentialsFile }: User) => path.join(path.dirname(credentialsFile), "tokens")
const tokensFile = (user: User) => {
  const [name, second] = fs.readdirSync(folderOf(user))
  assert.isUndefined(second)
  return path.join(folderOf(user), name ?? "")
}
const tokensOf = (user: User) => JSON.parse(fs.readFileSync(tokensFile(user), "utf8"))
const amend = (user: User, change: Record<string, unknown>) =>
  fs.writeFileSync(tokensFile(user), JSON.stringify({ ...tokensOf(user), ...change }))

it.live("a browser brings the code to a port of this machine; what is no answer is turned away", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    let asked = new URL("http://none.invalid")
    const statuses: Array<number | undefined> = []
    const done = yield* user.svc(["login", "--api-url", server.url, "--role", "member"]).pipe(
      Effect.provideService(
        OpenBrowser,
        browser(async (url) => {
          asked = url
          const right = server.answer(url)
          for (const wrong of [
            changed(right, ["state", "guessed"]),
            changed(right, ["iss", "https://evil.example"]),
            changed(right, ["error", "access_denied"]),
            new URL(`${right.href}&state=${url.searchParams.get("state")}`),
            new URL(`/other${right.search}`, right),
            new URL("/callback", right)
          ])
            statuses.push(await knock(wrong))
          statuses.push(await knock(right, { headers: { host: "evil.example" } }))
          statuses.push(await knock(right, { method: "POST" }))
          statuses.push(await knock(right))
        })
      )
    )
    assert.deepStrictEqual([done.code, done.stdout], [0, ""], done.stderr)
    assert.deepStrictEqual(statuses, [404, 404, 404, 404, 404, 404, 404, 404, 200])
    const query = Object.fromEntries(asked.searchParams)
    assert.match(query["redirect_uri"] ?? "", /^http:\/\/127\.0\.0\.1:\d+\/callback$/)
    assert.match(query["code_challenge"] ?? "", /^[\w-]{43}$/)
    assert.isAtLeast(query["state"]?.length ?? 0, 32)
    assert.deepInclude(query, {
      response_type: "code",
      client_id: "svc-cli",
      code_challenge_method: "S256",
      role: "member",
      scope: "caches.list me.get projects.list"
    })

    assert.include(done.stderr, 'Signed in to "acme"')
    for (const secret of server.secrets()) assert.notInclude(done.stderr, secret)
    for (const [file, mode] of [
      [tokensFile(user), 0o600],
      [folderOf(user), 0o700],
      [user.credentialsFile, 0o600]
    ] as const)
      assert.strictEqual(fs.statSync(file).mode & 0o777, mode)
    // Where and for whom is told apart from the tokens.
    const stored = JSON.parse(fs.readFileSync(user.credentialsFile, "utf8"))
    assert.deepStrictEqual(Object.keys(stored), ["apiUrl", "organization", "signIn"])
    assert.deepStrictEqual([stored.apiUrl, stored.organization], [server.url, "acme"])

    const [me, shown] = [yield* user.svc(["whoami", "--json"]), yield* user.svc(["whoami"])]
    assert.deepStrictEqual([me.code, shown.code], [0, 0], me.stderr)
    assert.deepInclude(JSON.parse(me.stdout), { credential: "grant", keyName: null })
    assert.match(shown.stdout, /^Ada <ada@example.test>, through svc at http/)
    for (const line of [
      /^acme +admin +Acme$/m,
      /^Grant +[0-9a-f-]{36}$/m,
      /^Ends +2030-/m,
      /^caches +list$/m
    ])
      assert.match(shown.stdout, line)
    assert.strictEqual(server.refreshes, 0)
    const out = yield* user.svc(["logout"])
    assert.strictEqual(out.code, 0, out.stderr)
    assert.deepStrictEqual(
      server.families.map(({ revoked }) => revoked),
      [true]
    )
    assert.isFalse(fs.existsSync(user.credentialsFile))
    assert.deepStrictEqual(fs.readdirSync(folderOf(user)), [])
    assert.strictEqual((yield* user.svc(["whoami", "--api-url", server.url])).code, 4)
  }).pipe(Effect.scoped)
)

it.live("without a browser here, the address that it ends at elsewhere is pasted", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    const run = recorded({ cwd: user.cwd, env: user.env })
    const stdin = new PassThrough()
    const args = ["login", "--no-browser", "--api-url", server.url, "--scope", "caches.*", "--read-only"]
    const running = yield* runCommand(args).pipe(
      Effect.provideService(Invocation, { ...run.invocation, stdin }),
      Effect.provideService(OpenBrowser, () => Effect.die("no browser was wanted")),
      Effect.forkScoped
    )
    const asked = yield* Effect.promise(() =>
      until("the address", () => /^ +(http\S+authorize\S+)$/m.exec(run.stderr())?.[1])
    )
    const right = server.answer(new URL(asked))
    assert.strictEqual(new URL(asked).searchParams.get("scope"), "caches.list me.get")
    const wrong = changed(right, ["state", "of another sign-in"])
    stdin.write(`nonsense\n${wrong.href}\n\n${right.href.replace("127.0.0.1", "evil.example")}\n`)
    yield* Effect.promise(() =>
      until("three refusals", () => run.stderr().split("not the address").length === 4)
    )
    stdin.write(`  ${right.href}\n`)
    assert.strictEqual(yield* Fiber.join(running), 0, run.stderr())
    assert.strictEqual((yield* user.svc(["whoami"])).code, 0)
  }).pipe(Effect.scoped)
)

it.live(
  "a denial, a server that is another, and an unknown scope end it with a sentence and store nothing",
  () =>
    Effect.gen(function* () {
      const server = yield* authorizationServer
      const user = yield* newUser
      const login = (...more: ReadonlyArray<string>) => user.svc(["login", "--api-url", server.url, ...more])
      const denied = yield* login().pipe(
        Effect.provideService(
          OpenBrowser,
          browser((asked) => fetch(server.answer(asked, "access_denied")))
        )
      )
      assert.strictEqual(denied.code, 4)
      assert.include(denied.stderr, "denied in the browser")
      const unknown = yield* login("--scope", "castles.*")
      assert.strictEqual(unknown.code, 2)
      assert.include(unknown.stderr, "castles.*")
      server.issuer = "https://evil.example"
      const other = yield* login()
      assert.strictEqual(other.code, 1)
      assert.include(other.stderr, "cannot sign anybody in: it calls itself https://evil.example")
      assert.isFalse(fs.existsSync(path.dirname(user.credentialsFile)))
      assert.strictEqual(server.families.length, 0)
    }).pipe(Effect.scoped)
)

it.live("a control plane of this machine may call itself by its other name", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    server.issuer = server.url.replace("127.0.0.1", "localhost")
    const done = yield* signedIn(user, server)
    assert.strictEqual(done.code, 0, done.stderr)
    amend(user, { expiresAt: 0 })
    assert.strictEqual((yield* user.svc(["whoami"])).code, 0)
    assert.strictEqual(server.refreshes, 1)
  }).pipe(Effect.scoped)
)

it.live("an access token that ran out is refreshed once, however many commands want it", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    yield* signedIn(user, server)
    amend(user, { expiresAt: 0 })
    const all = yield* Effect.all(
      Array.from({ length: 4 }, () => user.svc(["whoami"])),
      { concurrency: "unbounded" }
    )
    assert.deepStrictEqual(
      all.map(({ code }) => code),
      all.map(() => 0),
      all[0]?.stderr
    )
    assert.strictEqual(server.refreshes, 1)
    assert.strictEqual(tokensOf(user).refreshToken, server.families[0]?.refresh)
    assert.strictEqual(fs.statSync(tokensFile(user)).mode & 0o777, 0o600)
  }).pipe(Effect.scoped)
)

it.live("a server that is away, or answers nonsense, does not end the sign-in; a refused token does", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    yield* signedIn(user, server)
    server.fault = "unavailable"
    // It is refreshed early; until its end it does as it is.
    amend(user, { expiresAt: Date.now() + 50_000 })
    assert.strictEqual((yield* user.svc(["whoami"])).code, 0)
    assert.isAbove(server.refreshes, 0)
    amend(user, { expiresAt: 0 })
    const before = tokensOf(user)
    const away = yield* user.svc(["whoami"])
    assert.strictEqual(away.code, 1)
    assert.include(away.stderr, "It is kept")
    assert.deepStrictEqual(tokensOf(user), before)
    server.fault = undefined
    assert.strictEqual((yield* user.svc(["whoami"])).code, 0)

    amend(user, { expiresAt: 0, refreshToken: "svcr_made-up" })
    const over = yield* user.svc(["whoami"])
    assert.strictEqual(over.code, 4)
    assert.include(over.stderr, "Sign in again: svc login")
    assert.deepStrictEqual(fs.readdirSync(folderOf(user)), [])
    const again = yield* user.svc(["status"])
    assert.strictEqual(again.code, 4)
    assert.include(again.stderr, "Sign in again: svc login")
    yield* signedIn(user, server)
    server.fault = "nonsense"
    amend(user, { expiresAt: 0 })
    const nonsense = yield* user.svc(["whoami"])
    assert.strictEqual(nonsense.code, 1)
    assert.strictEqual(fs.readdirSync(folderOf(user)).length, 1)
    for (const secret of server.secrets())
      for (const { stderr, stdout } of [away, over, again, nonsense])
        assert.notInclude(stderr + stdout, secret)
  }).pipe(Effect.scoped)
)

it.live("new tokens that got lost end the sign-in, for the old one was used", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    yield* signedIn(user, server)
    amend(user, { expiresAt: 0 })
    server.fault = "answer lost"
    const lost = yield* user.svc(["whoami"])
    // It said nothing of the token yet.
    assert.strictEqual(lost.code, 1)
    assert.include(lost.stderr, "It is kept")
    server.fault = undefined
    const over = yield* user.svc(["whoami"])
    assert.strictEqual(over.code, 4)
    assert.deepStrictEqual(fs.readdirSync(folderOf(user)), [])
    assert.deepStrictEqual(
      server.families.map(({ revoked }) => revoked),
      [true]
    )
  }).pipe(Effect.scoped)
)

it.live("where the clock is wrong, the token that the server refuses is replaced once", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    yield* signedIn(user, server)
    // It looks good for an hour still.
    amend(user, { accessToken: "svca_of-an-hour-ago" })
    assert.strictEqual((yield* user.svc(["whoami"])).code, 0)
    assert.strictEqual(server.refreshes, 1)
    for (const family of server.families) family.revoked = true
    const revoked = yield* user.svc(["api", "GET", "/v1/me"])
    assert.deepStrictEqual([revoked.code, revoked.stdout], [4, ""])
    assert.include(revoked.stderr, "Your sign-in ended")
    assert.strictEqual(server.refreshes, 2)
  }).pipe(Effect.scoped)
)

it.live("a key and a session are kept beside a sign-in; a sign-in with a key ends the one by browser", () =>
  Effect.gen(function* () {
    const server = yield* authorizationServer
    const user = yield* newUser
    const others = { apiUrl: "http://127.0.0.1:1", organization: "main", apiKey: key }
    const session = `svcs_${"cd".repeat(32)}`
    user.signIn({ apiUrl: server.url, organization: "acme", apiKey: key, session, others: [others] })
    const stored = () => JSON.parse(fs.readFileSync(user.credentialsFile, "utf8"))
    assert.strictEqual((yield* user.svc(["whoami"])).code, 0)
    assert.strictEqual((yield* signedIn(user, server)).code, 0)
    assert.deepInclude(stored(), { apiUrl: server.url, organization: "acme", apiKey: key, session })
    assert.deepStrictEqual(stored().others, [others])
    assert.strictEqual((yield* signedIn(user, server)).code, 0)
    assert.deepStrictEqual(
      server.families.map(({ revoked }) => revoked),
      [true, false]
    )
    const keyed = yield* user.svc(["login", "--api-key", "--api-url", server.url], { stdin: key })
    assert.strictEqual(keyed.code, 0, keyed.stderr)
    assert.deepStrictEqual(stored(), {
      apiUrl: server.url,
      organization: "acme",
      apiKey: key,
      session,
      others: [others]
    })
    assert.deepStrictEqual(
      server.families.map(({ revoked }) => revoked),
      [true, true]
    )
    assert.deepStrictEqual(fs.readdirSync(folderOf(user)), [])
  }).pipe(Effect.scoped)
)

it.live(
  "a sign-in that the server cannot be told of any more is removed here, and the exit code says so",
  () =>
    Effect.gen(function* () {
      const server = yield* authorizationServer
      const user = yield* newUser
      yield* signedIn(user, server)
      server.fault = "unavailable"
      const out = yield* user.svc(["logout"])
      assert.strictEqual(out.code, 1)
      assert.include(out.stderr, "could not be told")
      assert.isFalse(fs.existsSync(user.credentialsFile))
      assert.deepStrictEqual(fs.readdirSync(folderOf(user)), [])
    }).pipe(Effect.scoped)
)
