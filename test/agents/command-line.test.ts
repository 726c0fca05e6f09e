/** The command line and the bridge for MCP clients as agents, against a real control plane. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Client as ClientV2 } from "@modelcontextprotocol/client"
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio"
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js"
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js"
import * as Effect from "effect/Effect"
import { digestOf } from "#src/access/Access.ts"
import { OpenBrowser } from "#src/cli/open-browser.ts"
import { newUser, program, type User } from "#test/cli/svc.ts"
import { Plane, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { requestsOf } from "./plane.ts"

type Requests = Effect.Success<typeof requestsOf>

/** The owner of an organization at a browser, who lets in whoever asks, for these of the operations asked for. */
const approving = Effect.fnUntraced(function* (
  requests: Requests,
  tenant: Tenant,
  only: (scope: string) => boolean = () => true
) {
  const { sql } = yield* Plane
  const digest = digestOf(tenant.owner).toString("hex")
  const [session] = yield* sql(`select id, user_id from session where digest = decode('${digest}', 'hex')`)
  const open: typeof OpenBrowser.Service = (asked) =>
    Effect.gen(function* () {
      const { id } = yield* requests.begin(asked.searchParams)
      const back = yield* requests.approve(id, {
        orgId: tenant.id,
        userId: String(session?.["user_id"]),
        sessionId: String(session?.["id"]),
        role: asked.searchParams.get("role") === "member" ? "member" : "admin",
        scopes: (asked.searchParams.get("scope") ?? "").split(" ").filter(only)
      })
      void fetch(back)
      return true
    }).pipe(Effect.orDie)
  return Effect.provideService(OpenBrowser, open)
})

const tokensOf = ({ credentialsFile }: User, field: "signIn" | "mcpSignIn") => {
  const id: string = JSON.parse(fs.readFileSync(credentialsFile, "utf8"))[field]
  const file = path.join(path.dirname(credentialsFile), "tokens", `${id}.json`)
  return { file, tokens: JSON.parse(fs.readFileSync(file, "utf8")) }
}

const url = Effect.map(Plane, (plane) => plane.url)

layer(testPlane({}, { SVC_AGENT_RATE_LIMIT: "100000" }), { excludeTestServices: true, timeout: "3 minutes" })(
  "the command line as an agent",
  (it) => {
    it.effect("a sign-in does what was granted, goes on by refreshing, and ends when it is taken back", () =>
      Effect.gen(function* () {
        const { tenant, sql } = yield* Plane
        const org = yield* tenant()
        const user = yield* newUser
        const approved = yield* approving(yield* requestsOf, org, (scope) => scope !== "projects.delete")
        const login = yield* user.svc(["login", "--api-url", yield* url]).pipe(approved)
        assert.strictEqual(login.code, 0, login.stderr)
        assert.include(login.stderr, `Signed in to "${org.slug}"`)

        const me = yield* user.svc(["whoami", "--json"])
        const { credentialId, grant, organizations } = JSON.parse(me.stdout)
        assert.deepInclude(grant, { clientId: "svc-cli", audience: "api" })
        assert.includeMembers(grant.scopes, ["caches.create", "me.get", "projects.create"])
        assert.deepStrictEqual([organizations[0].slug, organizations[0].role], [org.slug, "admin"])
        const made = yield* user.svc(["projects", "create", "shop"])
        assert.strictEqual(made.code, 0, made.stderr)
        const [refused, owners] = yield* Effect.all(
          [user.svc(["projects", "delete", "shop", "--yes"]), user.svc(["grants", "ls"])],
          { concurrency: 2 }
        )
        assert.strictEqual(refused.code, 1)
        assert.include(refused.stderr, "projects.delete")
        assert.strictEqual(owners.code, 4)
        assert.include(owners.stderr, "/account/agents")

        // Another process has refreshed a token that this one still thinks good.
        const { file, tokens } = tokensOf(user, "signIn")
        fs.writeFileSync(file, JSON.stringify({ ...tokens, expiresAt: 0 }))
        assert.strictEqual((yield* user.svc(["projects", "ls"])).code, 0)
        const renewed = tokensOf(user, "signIn").tokens
        assert.notStrictEqual(renewed.refreshToken, tokens.refreshToken)

        yield* sql(`update agent_grant set revoked_at = now() where id = '${credentialId}'`)
        const over = yield* user.svc(["projects", "ls"])
        assert.strictEqual(over.code, 4)
        assert.include(over.stderr, "Sign in again: svc login")
        for (const { stderr, stdout } of [login, me, made, refused, over])
          assert.notMatch(stderr + stdout, /svc[arc]_[0-9a-f]{20}/)
      })
    )

    it.effect("signing out revokes the grant, and a token that comes twice ends it", () =>
      Effect.gen(function* () {
        const { tenant, sql } = yield* Plane
        const org = yield* tenant()
        const user = yield* newUser
        const requests = yield* requestsOf
        const login = Effect.flatMap(approving(requests, org), (approved) =>
          Effect.flatMap(url, (at) => user.svc(["login", "--read-only", "--api-url", at]).pipe(approved))
        )
        const states = sql(`select revoked_at is null as lives from agent_grant where org_id = '${org.id}'`)
        yield* login
        assert.deepStrictEqual(yield* states, [{ lives: true }])
        assert.strictEqual((yield* user.svc(["logout"])).code, 0)
        assert.deepStrictEqual(yield* states, [{ lives: false }])

        yield* login
        const { file, tokens } = tokensOf(user, "signIn")
        const expired = JSON.stringify({ ...tokens, expiresAt: 0 })
        fs.writeFileSync(file, expired)
        assert.strictEqual((yield* user.svc(["status"])).code, 0)
        // A copy of the file, used after it: both are out.
        fs.writeFileSync(file, expired)
        assert.strictEqual((yield* user.svc(["status"])).code, 4)
        assert.deepStrictEqual(yield* states, [{ lives: false }, { lives: false }])
      })
    )

    it.effect(
      "clients that know no HTTP search without a credential, and execute once somebody signed in",
      () =>
        Effect.gen(function* () {
          const { tenant, sql } = yield* Plane
          const org = yield* tenant()
          const user = yield* newUser
          const at = yield* url
          const approved = yield* approving(yield* requestsOf, org)
          const server = {
            command: process.execPath,
            args: [program, "mcp", "serve", "--api-url", at],
            env: user.env,
            cwd: user.cwd,
            stderr: "pipe" as const
          }
          const older = new ClientV1({ name: "test", version: "1" })
          const newer = new ClientV2({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } })
          yield* Effect.acquireRelease(
            Effect.promise(() =>
              Promise.all([older.connect(new StdioV1(server)), newer.connect(new StdioV2(server))])
            ),
            () => Effect.promise(() => Promise.all([older.close(), newer.close()]))
          )
          assert.strictEqual(newer.getNegotiatedProtocolVersion(), "2026-07-28")
          const clients = [older, newer]
          const texts = (name: string, args: Record<string, unknown>) =>
            Effect.promise(() =>
              Promise.all(
                clients.map((client) =>
                  client.callTool({ name, arguments: args }).then(
                    (answer) => JSON.stringify(answer.content),
                    (error: unknown) => String(error)
                  )
                )
              )
            )
          for (const text of yield* texts("search", { query: "create a cache" }))
            assert.include(text, "caches.create")
          for (const text of yield* texts("execute", { operation: "projects.list" }))
            assert.include(text, `svc mcp login --api-url ${at}`)

          const login = yield* user
            .svc(["mcp", "login", "--api-url", at, "--scope", "projects.*"])
            .pipe(approved)
          assert.strictEqual(login.code, 0, login.stderr)
          const project = { name: "Größe", slug: "shop" }
          // Both make it at once.
          const made = yield* texts("execute", { operation: "projects.create", body: project })
          assert.sameMembers(
            made.map((text) => /status\\":(\d+)/.exec(text)?.[1]),
            ["201", "409"]
          )
          for (const text of yield* texts("execute", { operation: "projects.list" })) {
            assert.include(text, "Größe")
          }
          for (const text of yield* texts("execute", { operation: "caches.list" }))
            assert.include(text, "was not granted")
          // What is for MCP alone opens nothing else.
          assert.strictEqual((yield* user.svc(["projects", "ls", "--api-url", at])).code, 4)
          yield* sql(`update agent_grant set revoked_at = now() where org_id = '${org.id}'`)
          for (const text of yield* texts("execute", { operation: "projects.list" }))
            assert.include(text, "svc mcp login")
          for (const text of yield* texts("search", { query: "create a cache" }))
            assert.include(text, "caches.create")
        })
    )

    it.effect("what is written on standard output is messages, and the bridge ends with standard input", () =>
      Effect.gen(function* () {
        const { tenant } = yield* Plane
        const { adminKey, slug } = yield* tenant()
        const user = yield* newUser
        const at = yield* url
        user.signIn({ apiUrl: at, organization: slug, apiKey: adminKey })
        const execute = (id: number, operation: string) =>
          JSON.stringify({
            jsonrpc: "2.0",
            id,
            method: "tools/call",
            params: { name: "execute", arguments: { operation } }
          })
        const running = user.start(["mcp", "serve"], {
          stdin: ["not JSON", execute(1, "projects.list"), "", execute(2, "orgs.get")].join("\n")
        })
        const { code, stdout, stderr } = yield* Effect.promise(() => running.ended)
        assert.deepStrictEqual([code, stderr], [0, ""])
        const messages = stdout
          .trim()
          .split("\n")
          .map((line) => JSON.parse(line))
        assert.sameMembers(
          messages.map(({ id }) => id),
          [null, 1, 2]
        )
        assert.include(stdout, slug)
        assert.notInclude(stdout, adminKey)
      })
    )
  }
)
