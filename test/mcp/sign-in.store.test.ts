/** Clients of both lines of the official SDK find the way to sign in by themselves, and back to it. */

import { assert, layer } from "@effect/vitest"
import type { OAuthClientInformationMixed, OAuthTokens } from "@modelcontextprotocol/client"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { digestOf } from "#src/access/Access.ts"
import { requestsOf } from "#test/agents/plane.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { connect, lines } from "./clients.ts"

const redirect = "http://127.0.0.1:33418/callback"

/** What the program around a client keeps of a server. `asked` is where it sent its person last. */
class Program {
  asked: URL | undefined
  readonly redirectUrl = redirect
  readonly clientMetadata = {
    client_name: "Test program",
    redirect_uris: [redirect],
    token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"]
  }
  private client: OAuthClientInformationMixed | undefined
  private kept: OAuthTokens | undefined
  private verifier = ""
  state() {
    return "a state of theirs"
  }
  clientInformation() {
    return this.client
  }
  saveClientInformation(client: OAuthClientInformationMixed) {
    this.client = client
  }
  tokens() {
    return this.kept
  }
  saveTokens(tokens: OAuthTokens) {
    this.kept = tokens
  }
  redirectToAuthorization(url: URL) {
    this.asked = url
  }
  saveCodeVerifier(verifier: string) {
    this.verifier = verifier
  }
  codeVerifier() {
    return this.verifier
  }
  invalidateCredentials(what: string) {
    if (what === "all" || what === "tokens") this.kept = undefined
    if (what === "all" || what === "client") this.client = undefined
  }
}

/** An owner who approves whatever programs ask for. */
const approving = Effect.gen(function* () {
  const { tenant, sql } = yield* Plane
  const owner = yield* tenant()
  const requests = yield* requestsOf
  const digest = digestOf(owner.owner).toString("hex")
  const [session] = yield* sql(`select id, user_id from session where digest = decode('${digest}', 'hex')`)
  const approve = Effect.fnUntraced(function* (asked: URL | undefined) {
    if (asked === undefined) return yield* Effect.die(new Error("Nobody was asked"))
    const { id } = yield* Effect.orDie(requests.begin(asked.searchParams))
    const pending = Option.getOrThrow(yield* Effect.orDie(requests.get(id)))
    const decision = {
      orgId: owner.id,
      userId: String(session?.["user_id"]),
      sessionId: String(session?.["id"]),
      role: pending.role,
      scopes: pending.scopes
    }
    return new URL(yield* Effect.orDie(requests.approve(id, decision)))
  })
  return { owner, approve }
})

layer(testPlane(), { excludeTestServices: true })("MCP clients that sign in", (it) => {
  for (const line of lines) {
    it.effect(
      `${line} goes from 401 to a grant, to a wider one, over a refresh, and to its person again`,
      () =>
        Effect.gen(function* () {
          const { url, sql } = yield* Plane
          const { owner, approve } = yield* approving
          const program = new Program()
          // A machine has several names for itself, and clients hold what we say against the one that they know.
          const known = line === "v1" ? url.replace("127.0.0.1", "localhost") : url
          const { call, failure, finishAuth } = yield* connect(line, known, { auth: program })
          const list = { operation: "projects.list" }

          assert.match((yield* failure("execute", list)) ?? "", /unauthori[sz]ed/i)
          assert.strictEqual(program.asked?.searchParams.get("resource"), `${known}/mcp`)
          assert.include(scopesOf(program.asked), "projects.list")
          yield* finishAuth(yield* approve(program.asked))
          assert.isFalse((yield* call("execute", list)).isError)

          program.asked = undefined
          const create = { operation: "projects.create", body: { name: "Web", slug: `web-${line}` } }
          yield* failure("execute", create)
          // The older line does not ask for more while it can refresh.
          if (line === "v2") {
            assert.include(scopesOf(program.asked), "projects.create")
            yield* finishAuth(yield* approve(program.asked))
            assert.isFalse((yield* call("execute", create)).isError)
          }

          program.asked = undefined
          yield* sql(`update agent_access_token set expires_at = now() where org_id = '${owner.id}'`)
          assert.isFalse((yield* call("execute", list)).isError)
          assert.isUndefined(program.asked)

          yield* sql(`update agent_grant set revoked_at = now() where org_id = '${owner.id}'`)
          yield* failure("execute", list)
          assert.isDefined(program.asked)
        })
    )
  }
})

const scopesOf = (asked: URL | undefined): ReadonlyArray<string> =>
  asked?.searchParams.get("scope")?.split(" ") ?? []
