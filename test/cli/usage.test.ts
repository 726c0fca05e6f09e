/** What the command line does before it has anything to talk to, and where it sends credentials. */
import * as fs from "node:fs"
import * as http from "node:http"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { newUser } from "./svc.ts"

const key = `svc_${"ab".repeat(20)}`

/** A server that belongs to somebody else, and what it was sent. */
const stranger = Effect.acquireRelease(
  Effect.promise(async () => {
    const received: Array<string | undefined> = []
    const server = http.createServer((request, response) => {
      received.push(request.headers.authorization)
      response.writeHead(200, { "content-type": "application/json" }).end("{}")
    })
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    const address = server.address()
    if (address === null || typeof address === "string") throw new Error("no port")
    return { server, received, url: `http://127.0.0.1:${address.port}` }
  }),
  ({ server }) => Effect.sync(() => server.close())
)

it.live("help goes to stdout, mistakes to stderr in few lines with exit code 2", () =>
  Effect.gen(function* () {
    const { svc, program } = yield* newUser
    const [help, nothing, flag, command, argument, value, detailed, version, colour] = yield* Effect.all(
      [
        program(["--help"]),
        svc(["caches"]),
        program(["plan", "--bogus"]),
        svc(["conquer"]),
        svc(["retry"]),
        svc(["status", "--no-such", "x"]),
        svc(["plan", "--bogus", "--detailed-exitcode"]),
        svc(["--version"]),
        svc(["up", "--help"])
      ],
      { concurrency: 3 }
    )
    for (const name of ["up", "down", "plan", "apply", "status", "caches", "database", "env", "admin"])
      assert.match(help.stdout, new RegExp(`^ +${name}[ ,]`, "m"))
    assert.strictEqual(help.code, 0)
    assert.strictEqual(help.stderr, "")
    // biome-ignore lint/suspicious/noControlCharactersInRegex: nobody reads colours in a pipe.
    assert.notMatch(help.stdout + colour.stdout, /\u001b\[/)
    assert.strictEqual(nothing.code, 0)
    assert.match(nothing.stdout, /create/)
    for (const wrong of [flag, command, argument, value]) {
      assert.strictEqual(wrong.code, 2)
      assert.strictEqual(wrong.stdout, "")
      assert.isBelow(wrong.stderr.split("\n").length, 4)
      assert.match(wrong.stderr, /See svc.* --help/)
    }
    assert.match(flag.stderr, /--bogus/)
    assert.match(command.stderr, /conquer/)
    // 2 would say that there are changes.
    assert.strictEqual(detailed.code, 1)
    assert.match(version.stdout, /svc v\d+\.\d+\.\d+/)
  }).pipe(Effect.scoped)
)

it.live("completion scripts name every command, and the doctor says what is there in JSON", () =>
  Effect.gen(function* () {
    const { svc } = yield* newUser
    const [bash, zsh, fish, doctor] = yield* Effect.all(
      [
        svc(["completion", "bash"]),
        svc(["completion", "zsh"]),
        svc(["completion", "fish"]),
        svc(["doctor", "--json"])
      ],
      { concurrency: 2 }
    )
    for (const script of [bash, zsh, fish]) {
      assert.strictEqual(script.code, 0)
      for (const name of ["rotate-keys", "caches", "detailed-exitcode"]) assert.include(script.stdout, name)
    }
    const { dependencies, limits } = JSON.parse(doctor.stdout) as {
      limits: { required: boolean; found?: string; why?: string; hint?: string }
      dependencies: ReadonlyArray<{ name: string; found?: string; neededBy: string; hint: string }>
    }
    assert.includeMembers(
      dependencies.map(({ name }) => name),
      ["node", "postgres", "redis-server", "haproxy", "nsupdate"]
    )
    // Either servers can be limited here, or it is said why not and what to do.
    if (limits.found === undefined) assert.isNotEmpty(`${limits.why}${limits.hint}`)
    else assert.match(limits.found, /^cgroup v[12]: memory/)
    assert.isFalse(limits.required)
    const missing = dependencies.filter(({ found }) => found === undefined)
    assert.strictEqual(doctor.code, missing.length === 0 ? 0 : 1)
  }).pipe(Effect.scoped)
)

it.live("a stored credential is sent to the control plane it was made for and nowhere else", () =>
  Effect.gen(function* () {
    const { svc, cwd, signIn } = yield* newUser
    const [home, foreign] = [yield* stranger, yield* stranger]
    signIn({ apiUrl: home.url, organization: "main", apiKey: key, session: `svcs_${"cd".repeat(32)}` })
    const trap = path.join(cwd, "trap", "deeper")
    fs.mkdirSync(trap, { recursive: true })
    fs.writeFileSync(path.join(cwd, "trap", "svc.yaml"), `apiUrl: ${foreign.url}\n`)
    const dotenv = path.join(cwd, "dotenv")
    fs.mkdirSync(dotenv)
    fs.writeFileSync(path.join(dotenv, ".env"), `SVC_API_URL=${foreign.url}\n`)
    const outcomes = yield* Effect.all(
      [
        svc(["status"], { cwd: trap }),
        svc(["status"], { cwd: dotenv }),
        svc(["whoami"], { env: { SVC_API_URL: foreign.url } }),
        svc(["export", "--api-url", foreign.url]),
        svc(["caches", "delete", "shop", "one", "--yes", "--api-url", foreign.url])
      ],
      { concurrency: 3 }
    )
    for (const { code, stderr, stdout } of outcomes) {
      assert.strictEqual(code, 4)
      assert.strictEqual(stdout, "")
      assert.include(stderr, `There is no credential for ${foreign.url}`)
      assert.include(stderr, `Stored ones are for ${home.url} and are sent nowhere else`)
    }
    assert.include(outcomes[0].stderr, path.join(cwd, "trap", "svc.yaml"))
    assert.deepStrictEqual(foreign.received, [])
    // Without one, what needs none can be asked anywhere.
    assert.strictEqual((yield* svc(["api", "GET", "/v1/health", "--api-url", foreign.url])).code, 0)
    assert.deepStrictEqual(foreign.received, [undefined])
    yield* svc(["api", "GET", "/v1/me"])
    yield* svc(["api", "GET", "/v1/me", "--owner", "--api-url", `${home.url}/`])
    assert.deepStrictEqual(home.received, [`Bearer ${key}`, `Bearer svcs_${"cd".repeat(32)}`])
  }).pipe(Effect.scoped)
)

it.live("a token of the environment is not sent where only a file of the folder says", () =>
  Effect.gen(function* () {
    const { svc, cwd } = yield* newUser
    fs.writeFileSync(path.join(cwd, "svc.yaml"), "apiUrl: https://svc.invalid\n")
    const refused = yield* svc(["status"], { env: { SVC_TOKEN: key } })
    assert.strictEqual(refused.code, 4)
    assert.include(refused.stderr, "SVC_TOKEN is not sent to https://svc.invalid")
    // Named by the environment too, it is tried (and there is no such host).
    const tried = yield* svc(["status"], { env: { SVC_TOKEN: key, SVC_API_URL: "https://svc.invalid" } })
    assert.strictEqual(tried.code, 1)
    assert.include(tried.stderr, "cannot be reached")
    // The rest of a .env file is the application's.
    const foreign = yield* stranger
    fs.rmSync(path.join(cwd, "svc.yaml"))
    fs.writeFileSync(
      path.join(cwd, ".env"),
      `SVC_API_URL=${foreign.url}\nSVC_TOKEN=${key}\nXDG_CONFIG_HOME=/nowhere\nHTTP_PROXY=http://127.0.0.1:1\n`
    )
    assert.strictEqual((yield* svc(["api", "GET", "/v1/me"])).code, 0)
    assert.deepStrictEqual(foreign.received, [`Bearer ${key}`])
    for (const url of ["ftp://x", "not a url", "http://user:pass@127.0.0.1"]) {
      const wrong = yield* svc(["status", "--api-url", url])
      assert.strictEqual(wrong.code, 2, url)
      assert.notInclude(wrong.stderr, "pass@")
    }
  }).pipe(Effect.scoped)
)

it.live("a control plane that does not answer and files that are damaged are told in one sentence", () =>
  Effect.gen(function* () {
    const { svc, credentialsFile, signIn } = yield* newUser
    signIn({ apiUrl: "http://127.0.0.1:9", apiKey: key })
    const down = yield* svc(["status"])
    assert.strictEqual(down.code, 1)
    assert.include(down.stderr, "Is the control plane running (svc up)?")
    fs.writeFileSync(credentialsFile, "{ half")
    const damaged = yield* svc(["status"])
    assert.strictEqual(damaged.code, 1)
    assert.include(damaged.stderr, `${credentialsFile} is damaged`)
    const nothing = yield* svc(["down"])
    assert.strictEqual(nothing.code, 0)
    assert.include(nothing.stderr, "There is nothing in")
    const admin = yield* svc(["admin", "rotate-keys"])
    assert.strictEqual(admin.code, 5)
  }).pipe(Effect.scoped)
)
