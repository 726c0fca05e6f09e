/**
 * A small authorization server made from the standards (RFC 6749, 7009, 7636, 8414, 9207), with an operation that takes
 * its access tokens. It breaks in the ways that a test says.
 */
import { createHash, randomBytes, randomUUID } from "node:crypto"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import * as Effect from "effect/Effect"

interface Family {
  access: string
  refresh: string
  readonly used: Set<string>
  revoked: boolean
}

export type Fault =
  /** 503 instead of tokens. */
  | "unavailable"
  /** Never answers, and has done nothing. */
  | "hangs"
  /** Gives new tokens, and ends the connection instead of answering. */
  | "answer lost"
  /** Answers 200 with something else. */
  | "nonsense"

const listening = (serve: (request: IncomingMessage, response: ServerResponse) => void) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const server = createServer(serve)
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
      const address = server.address()
      if (address === null || typeof address === "string") throw new Error("no port")
      return { server, port: address.port }
    }),
    ({ server }) =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            server.close(() => resolve())
            server.closeAllConnections()
          })
      )
  )

export const authorizationServer = Effect.gen(function* () {
  const codes = new Map<string, { readonly challenge: string; readonly redirectUri: string }>()
  const families: Array<Family> = []
  const self = {
    url: "",
    /** What it calls itself. */
    issuer: "",
    fault: undefined as Fault | undefined,
    lifetimeSeconds: 3_600,
    /** Requests with a refresh token. */
    refreshes: 0,
    families,
    /** What an approval, or a denial, sends the browser to. */
    answer: (asked: URL, error?: string): URL => {
      const query = asked.searchParams
      const redirectUri = query.get("redirect_uri") ?? ""
      const code = `svcc_${randomBytes(32).toString("hex")}`
      codes.set(code, { challenge: query.get("code_challenge") ?? "", redirectUri })
      const back = new URL(redirectUri)
      back.search = new URLSearchParams({
        ...(error === undefined ? { code } : { error }),
        state: query.get("state") ?? "",
        iss: self.issuer
      }).toString()
      return back
    },
    /** Every token there ever was. */
    secrets: () => families.flatMap(({ access, refresh, used }) => [access, refresh, ...used])
  }
  const renew = (family: Family) => {
    if (family.access !== "") family.used.add(family.access).add(family.refresh)
    family.access = `svca_${randomBytes(32).toString("hex")}`
    family.refresh = `svcr_${randomBytes(32).toString("hex")}`
  }
  const issue = (form: URLSearchParams): Family | undefined => {
    if (form.get("client_id") !== "svc-cli") return undefined
    if (form.get("grant_type") === "authorization_code") {
      const code = codes.get(form.get("code") ?? "")
      codes.delete(form.get("code") ?? "")
      const proof = createHash("sha256")
        .update(form.get("code_verifier") ?? "")
        .digest("base64url")
      if (code?.challenge !== proof || code.redirectUri !== form.get("redirect_uri")) return undefined
      const family: Family = { access: "", refresh: "", used: new Set(), revoked: false }
      renew(family)
      families.push(family)
      return family
    }
    self.refreshes++
    const token = form.get("refresh_token") ?? ""
    for (const family of families) if (family.used.has(token)) family.revoked = true
    const family = families.find(({ refresh, revoked }) => refresh === token && !revoked)
    if (family !== undefined && self.fault !== "unavailable") renew(family)
    return family
  }
  const answer = (response: ServerResponse, status: number, body: unknown) => {
    response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store" })
    response.end(JSON.stringify(body))
  }
  const { port } = yield* listening((request, response) => {
    let text = ""
    request.on("data", (chunk: Buffer) => (text += chunk.toString()))
    request.on("end", () => {
      const form = new URLSearchParams(text)
      const { issuer, url } = self
      if (request.url === "/.well-known/oauth-authorization-server")
        return answer(response, 200, {
          issuer,
          authorization_endpoint: `${issuer}/agent/authorize`,
          token_endpoint: `${issuer}/oauth/token`,
          revocation_endpoint: `${issuer}/oauth/revoke`,
          response_types_supported: ["code"],
          code_challenge_methods_supported: ["S256"],
          authorization_response_iss_parameter_supported: true,
          scopes_supported: ["caches.create", "caches.list", "me.get", "projects.list"]
        })
      if (request.url === "/oauth/token") {
        if (self.fault === "hangs") return void self.refreshes++
        const family = issue(form)
        if (self.fault === "unavailable") return answer(response, 503, { error: "temporarily_unavailable" })
        if (self.fault === "answer lost") return request.socket.destroy()
        if (self.fault === "nonsense") return answer(response, 200, { hello: "there" })
        if (family === undefined) return answer(response, 400, { error: "invalid_grant" })
        return answer(response, 200, {
          access_token: family.access,
          refresh_token: family.refresh,
          token_type: "Bearer",
          expires_in: self.lifetimeSeconds,
          scope: "caches.list me.get",
          organization: "acme",
          role: "admin"
        })
      }
      if (request.url === "/oauth/revoke") {
        for (const family of families) if (family.refresh === form.get("token")) family.revoked = true
        return answer(response, self.fault === "unavailable" ? 503 : 200, {})
      }
      const token = request.headers.authorization?.replace("Bearer ", "")
      const holds = families.some(({ access, revoked }) => access === token && !revoked)
      const scopes = ["caches.list", "me.get"]
      const grant = { clientId: "svc-cli", clientName: "svc", audience: "api", scopes, expiresAt: ends }
      if (request.url !== "/v1/me" || !(holds || token === key))
        return answer(response, 401, {
          type: `${url}/problems/unauthenticated`,
          title: "Unauthenticated",
          status: 401,
          detail: "It does not hold",
          code: "unauthenticated",
          requestId: "1"
        })
      const user = { id: randomUUID(), email: "ada@example.test", name: "Ada" }
      answer(response, 200, {
        credential: holds ? "grant" : "key",
        credentialId: randomUUID(),
        keyName: holds ? null : "of the test",
        grant: holds ? grant : null,
        userId: user.id,
        user,
        organizations: [{ id: randomUUID(), slug: "acme", name: "Acme", role: "admin" }]
      })
    })
  })
  self.url = `http://127.0.0.1:${port}`
  self.issuer = self.url
  return self
})

const ends = "2030-01-01T00:00:00.000Z"
/** The server takes this one too. */
export const key = `svc_${"ab".repeat(20)}`
