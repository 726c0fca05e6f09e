/**
 * A certificate authority that speaks ACME in this process, for what a real one cannot be made to do: refuse on demand,
 * ask for patience, advise when to renew. It checks nonces, signatures and proofs as RFC 8555 says.
 */
import { createHash, createHmac, createPublicKey, randomBytes, randomUUID, verify } from "node:crypto"
import * as http from "node:http"
import "reflect-metadata"
import * as x509 from "@peculiar/x509"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

export type Operation =
  | "directory"
  | "newNonce"
  | "newAccount"
  | "newOrder"
  | "order"
  | "authorization"
  | "challenge"
  | "finalize"
  | "certificate"
  | "renewalInfo"

export interface Trouble {
  readonly status: number
  /** The last word of an ACME error. */
  readonly type?: string
  readonly detail?: string
  readonly headers?: Readonly<Record<string, string>>
  /** The request is worked on, and its answer is lost. */
  readonly afterwards?: boolean
}

interface Order {
  readonly id: string
  readonly account: string
  readonly name: string
  readonly token: string
  readonly replaces: string | undefined
  status: "pending" | "ready" | "processing" | "valid" | "invalid"
  accepted: number
  error?: object
  chain?: string
}

const Jwk = Schema.Struct({ crv: Schema.String, kty: Schema.String, x: Schema.String, y: Schema.String })
const Signed = Schema.fromJsonString(
  Schema.Struct({ protected: Schema.String, payload: Schema.String, signature: Schema.String })
)
const Header = Schema.Struct({
  nonce: Schema.String,
  url: Schema.String,
  kid: Schema.optional(Schema.String),
  jwk: Schema.optional(Jwk)
})
const Payload = Schema.Struct({
  onlyReturnExisting: Schema.optional(Schema.Boolean),
  contact: Schema.optional(Schema.Array(Schema.String)),
  externalAccountBinding: Schema.optional(
    Schema.Struct({ protected: Schema.String, payload: Schema.String, signature: Schema.String })
  ),
  identifiers: Schema.optional(Schema.Array(Schema.Struct({ value: Schema.String }))),
  replaces: Schema.optional(Schema.String),
  csr: Schema.optional(Schema.String)
})
const json = (base64url: string): unknown => JSON.parse(Buffer.from(base64url, "base64url").toString())
const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const

export interface AuthorityOptions {
  /** What a host answers to a challenge, or a record says. */
  readonly proof: (name: string, token: string, type: "http-01" | "dns-01") => Promise<string | undefined>
  readonly caaIdentities?: ReadonlyArray<string>
  /** Accounts only for who has this key, in base64url. */
  readonly binding?: { readonly kid: string; readonly hmacKey: string }
  readonly advises?: boolean
  /** It never ends an order; the first time that it says so, with this `Retry-After`. */
  readonly neverEnds?: { retryAfter: string | undefined }
}

export const startAuthority = (options: AuthorityOptions) =>
  Effect.acquireRelease(
    Effect.promise(() => start(options)),
    ({ close }) => Effect.promise(close)
  )

export type Authority = Effect.Success<ReturnType<typeof startAuthority>>

const start = async (options: AuthorityOptions) => {
  const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"])
  const root = await x509.X509CertificateGenerator.createSelfSigned({
    name: "CN=Stand-in",
    keys,
    signingAlgorithm: algorithm,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey)
    ]
  })
  const nonces = new Set<string>()
  const accounts = new Map<
    string,
    { readonly url: string; readonly jwk: typeof Jwk.Type; contact: unknown }
  >()
  const orders = new Map<string, Order>()
  /** What happens to the next requests of an operation. */
  const troubles: Partial<Record<Operation, Array<Trouble>>> = {}
  const asked: Array<Operation> = []
  const lifeMs = { value: 90 * 86_400_000 }
  /** So many looks at an authorization after a proof find it pending, and are asked to come again in a minute. */
  const patience = { looks: 0 }
  const window: { start: Date; end: Date } = { start: new Date(0), end: new Date(0) }

  const issue = async (csr: string) => {
    const request = new x509.Pkcs10CertificateRequest(Buffer.from(csr, "base64url"))
    if (!(await request.verify())) return undefined
    const leaf = await x509.X509CertificateGenerator.create({
      serialNumber: `9${randomBytes(8).toString("hex").slice(1)}`,
      issuer: root.subjectName,
      notBefore: new Date(),
      notAfter: new Date(Date.now() + lifeMs.value),
      publicKey: request.publicKey,
      signingKey: keys.privateKey,
      signingAlgorithm: algorithm,
      extensions: [
        ...request.extensions.filter(({ type }) => type === "2.5.29.17"),
        await x509.AuthorityKeyIdentifierExtension.create(keys.publicKey)
      ]
    })
    return `${leaf.toString("pem")}\n${root.toString("pem")}\n`
  }

  const server = http.createServer((incoming, outgoing) => {
    void answer(incoming).then(
      ({ status, headers = {}, body }) => {
        const nonce = randomUUID()
        nonces.add(nonce)
        outgoing.writeHead(status, { "replay-nonce": nonce, ...headers })
        outgoing.end(typeof body === "string" ? body : body === undefined ? "" : JSON.stringify(body))
      },
      (error: unknown) => {
        outgoing.writeHead(500)
        outgoing.end(String(error))
      }
    )
  })

  interface Reply {
    readonly status: number
    readonly headers?: Readonly<Record<string, string>>
    readonly body?: unknown
  }
  const problem = ({ status, type, detail, headers }: Trouble): Reply => ({
    status,
    headers: { "content-type": "application/problem+json", ...headers },
    body: type === undefined ? "<html>" : { type: `urn:ietf:params:acme:error:${type}`, detail }
  })

  const operationOf = (path: string): Operation => {
    const [, first = ""] = path.split("/")
    const known: ReadonlyArray<Operation> = [
      "directory",
      "newNonce",
      "newAccount",
      "newOrder",
      "order",
      "authorization",
      "challenge",
      "finalize",
      "certificate",
      "renewalInfo"
    ]
    return known.find((one) => one === first) ?? "directory"
  }

  const answer = async (incoming: http.IncomingMessage): Promise<Reply> => {
    const path = incoming.url ?? "/"
    const operation = operationOf(path)
    asked.push(operation)
    const chunks: Array<Buffer> = []
    for await (const chunk of incoming) chunks.push(Buffer.from(chunk))
    const trouble = troubles[operation]?.shift()
    if (trouble !== undefined && trouble.afterwards !== true) return problem(trouble)
    const reply = await work(operation, path, Buffer.concat(chunks).toString())
    return trouble === undefined ? reply : problem(trouble)
  }

  const work = async (operation: Operation, path: string, text: string): Promise<Reply> => {
    const id = path.split("/")[2] ?? ""
    if (operation === "directory") {
      return {
        status: 200,
        body: {
          newNonce: `${base()}/newNonce`,
          newAccount: `${base()}/newAccount`,
          newOrder: `${base()}/newOrder`,
          ...(options.advises === true ? { renewalInfo: `${base()}/renewalInfo` } : {}),
          meta: {
            caaIdentities: options.caaIdentities,
            externalAccountRequired: options.binding !== undefined
          }
        }
      }
    }
    if (operation === "newNonce") return { status: 200 }
    if (operation === "renewalInfo") {
      return { status: 200, headers: { "retry-after": "7200" }, body: { suggestedWindow: window } }
    }
    const signed = Schema.decodeUnknownSync(Signed)(text)
    const header = Schema.decodeUnknownSync(Header)(json(signed.protected))
    if (!nonces.delete(header.nonce)) return problem({ status: 400, type: "badNonce", detail: "used" })
    if (header.url !== `${base()}${path}`) return problem({ status: 401, type: "unauthorized" })
    const account = [...accounts.values()].find(({ url }) => url === header.kid)
    const jwk = header.jwk ?? account?.jwk
    if (jwk === undefined)
      return problem({ status: 400, type: "accountDoesNotExist", detail: "who are you?" })
    const good = verify(
      "sha256",
      Buffer.from(`${signed.protected}.${signed.payload}`),
      { key: createPublicKey({ key: jwk, format: "jwk" }), dsaEncoding: "ieee-p1363" },
      Buffer.from(signed.signature, "base64url")
    )
    if (!good) return problem({ status: 401, type: "unauthorized", detail: "signature" })
    const payload = Schema.decodeUnknownSync(Payload)(signed.payload === "" ? {} : json(signed.payload))
    const thumbprint = createHash("sha256")
      .update(JSON.stringify({ crv: jwk.crv, kty: jwk.kty, x: jwk.x, y: jwk.y }))
      .digest("base64url")

    if (operation === "newAccount") {
      const known = accounts.get(thumbprint)
      if (known !== undefined) return { status: 200, headers: { location: known.url }, body: {} }
      if (payload.onlyReturnExisting === true) return problem({ status: 400, type: "accountDoesNotExist" })
      if (options.binding !== undefined) {
        const bound = payload.externalAccountBinding
        const mac = createHmac("sha256", Buffer.from(options.binding.hmacKey, "base64url"))
          .update(`${bound?.protected}.${bound?.payload}`)
          .digest("base64url")
        if (bound?.signature !== mac) return problem({ status: 401, type: "unauthorized", detail: "binding" })
      }
      const url = `${base()}/account/${accounts.size}`
      accounts.set(thumbprint, { url, jwk, contact: payload.contact })
      return { status: 201, headers: { location: url }, body: {} }
    }
    if (operation === "newOrder") {
      const order: Order = {
        id: randomUUID(),
        account: thumbprint,
        name: payload.identifiers?.[0]?.value ?? "",
        token: randomBytes(16).toString("base64url"),
        replaces: payload.replaces,
        status: "pending",
        accepted: 0
      }
      orders.set(order.id, order)
      return { status: 201, headers: { location: `${base()}/order/${order.id}` }, body: view(order) }
    }
    const order = orders.get(id)
    if (order === undefined) return problem({ status: 404, type: "malformed", detail: "no such order" })
    switch (operation) {
      case "order":
        if (order.status === "processing" && options.neverEnds !== undefined) {
          const { retryAfter } = options.neverEnds
          options.neverEnds.retryAfter = undefined
          const headers = retryAfter === undefined ? {} : { "retry-after": retryAfter }
          return { status: 200, headers, body: view(order) }
        }
        if (order.status === "processing") order.status = "valid"
        return { status: 200, body: view(order) }
      case "authorization":
        if (order.accepted > 0 && order.status === "pending") {
          if (patience.looks-- > 0) {
            return { status: 200, headers: { "retry-after": "60" }, body: authorization(order) }
          }
          await prove(order, thumbprint)
        }
        return { status: 200, body: authorization(order) }
      case "challenge": {
        order.accepted++
        if (patience.looks <= 0) await prove(order, thumbprint)
        return { status: 200, body: {} }
      }
      case "finalize": {
        if (order.status !== "ready")
          return problem({ status: 403, type: "orderNotReady", detail: order.status })
        const chain = await issue(payload.csr ?? "")
        if (chain === undefined) return problem({ status: 400, type: "badCSR", detail: "no" })
        order.chain = chain
        order.status = "processing"
        return { status: 200, body: view(order) }
      }
      default:
        return { status: 200, body: order.chain }
    }
  }
  const prove = async (order: Order, thumbprint: string) => {
    const type = order.name.startsWith("*.") ? "dns-01" : "http-01"
    const wanted = `${order.token}.${thumbprint}`
    const expected = type === "http-01" ? wanted : createHash("sha256").update(wanted).digest("base64url")
    const found = await options.proof(order.name, order.token, type)
    if (found === expected) {
      order.status = "ready"
      return
    }
    order.status = "invalid"
    order.error = {
      type: "urn:ietf:params:acme:error:unauthorized",
      detail: `${order.name} said ${found ?? "nothing"}`
    }
  }
  const view = (order: Order) => ({
    status: order.status,
    authorizations: [`${base()}/authorization/${order.id}`],
    finalize: `${base()}/finalize/${order.id}`,
    ...(order.status === "valid" ? { certificate: `${base()}/certificate/${order.id}` } : {})
  })
  const authorization = (order: Order) => {
    const status = order.status === "pending" ? "pending" : order.status === "invalid" ? "invalid" : "valid"
    const type = order.name.startsWith("*.") ? "dns-01" : "http-01"
    return {
      status,
      challenges: [
        { type: "tls-alpn-01", url: `${base()}/challenge/${order.id}`, status, token: order.token },
        {
          type,
          url: `${base()}/challenge/${order.id}`,
          status,
          token: order.token,
          ...(order.error === undefined ? {} : { error: order.error })
        }
      ]
    }
  }

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const address = server.address()
  const port = typeof address === "object" && address !== null ? address.port : 0
  const base = () => `http://127.0.0.1:${port}`
  return {
    directoryUrl: `${base()}/directory`,
    troubles,
    asked,
    orders,
    accounts,
    nonces,
    lifeMs,
    window,
    patience,
    rootPem: root.toString("pem"),
    close: () =>
      new Promise<void>((resolve) => {
        server.closeAllConnections()
        server.close(() => resolve())
      })
  }
}
