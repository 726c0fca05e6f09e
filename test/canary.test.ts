/**
 * Secrets go through the whole system, in a real process, and are then looked for wherever they must not be: in what
 * it says (log, events, plans, problems, metrics, traces), in the store, and in what the machine shows of processes.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import * as http from "node:http"
import type * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { inject } from "vitest"
import { KeyRing } from "#src/store/KeyRing.ts"
import { platformPlace } from "#src/store/Secrets.ts"
import { endless, refuses, says, standIn } from "#test/ai-gateways/runtime/upstream.ts"
import { stripeStandIn, usualRights } from "#test/payments/stripe/stand-in.ts"
import { containerEngine, registryPassword, registryUser, sh } from "#test/setup/containers.ts"
import { migratedDatabase } from "#test/setup/database.ts"
import { freePort } from "#test/setup/postgres.ts"
import { killNaming, sweep } from "#test/setup/processes.ts"
import { objectStore } from "#test/setup/s3.ts"
import { until } from "#test/setup/wait.ts"

const program = fileURLToPath(new URL("../src/cli/svc.mjs", import.meta.url))

/** A secret, in every spelling in which it could come out somewhere. */
const spellings = (secret: string): ReadonlyArray<string> => {
  const bytes = Buffer.from(secret)
  // In the middle of a longer text base64 begins at one of three places; the ends mix with what is around.
  const base64 = [0, 1, 2].map((offset) =>
    Buffer.concat([Buffer.alloc(offset), bytes])
      .toString("base64")
      .slice(offset === 0 ? 0 : 4)
      .replace(/=+$/, "")
      .slice(0, -1)
  )
  return [
    ...new Set([
      secret,
      encodeURIComponent(secret),
      JSON.stringify(secret).slice(1, -1),
      bytes.toString("hex"),
      ...base64,
      ...base64.map((text) => text.replaceAll("+", "-").replaceAll("/", "_"))
    ])
  ]
}

class Canaries {
  readonly #known = new Map<string, ReadonlyArray<string>>()
  add(name: string, secret: string): string {
    assert.isAbove(secret.length, 12, `${name} is too short to be told from other text`)
    this.#known.set(`${name} ${this.#known.size}`, spellings(secret))
    return secret
  }
  make(name: string): string {
    return this.add(name, `canary-${name}-${randomBytes(9).toString("hex")}`)
  }
  /** Fails when one of them is in the text. */
  absent(where: string, text: string): void {
    for (const [name, forms] of this.#known) {
      for (const form of forms) {
        const at = text.indexOf(form)
        if (at === -1) continue
        const around =
          text.slice(Math.max(0, at - 200), at) +
          "[here]" +
          text.slice(at + form.length, at + form.length + 100)
        assert.fail(`${where} holds the ${name}: ...${around}...`)
      }
    }
  }
  get size(): number {
    return this.#known.size
  }
}

/** What a collector of traces and logs is sent. */
const collector = Effect.acquireRelease(
  Effect.promise(async () => {
    const received: Array<{ readonly path: string; readonly body: string }> = []
    const server = http.createServer((request, response) => {
      const chunks: Array<Buffer> = []
      request.on("data", (chunk: Buffer) => chunks.push(chunk))
      request.on("end", () => {
        received.push({ path: request.url ?? "", body: Buffer.concat(chunks).toString() })
        response.writeHead(200, { "content-type": "application/json" }).end("{}")
      })
    })
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    return { received, server, url: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}` }
  }),
  ({ server }) => Effect.sync(() => void server.close())
)

/**
 * Command lines and environments of every process but the control plane itself. A child that has not begun its own
 * program yet is still the control plane. One that is new is looked at as often as can be, because it may end or begin
 * another program soon; one that goes on, once a second. Its environment is read with each program that it begins, and
 * once a second.
 */
const watchProcesses = () => {
  const seen = new Set<string>()
  const ownWorld = fs.readlinkSync("/proc/self/ns/pid")
  interface Known {
    /** How often it was there. */
    readonly age: number
    /** The command line with which its environment is known. */
    readonly command: string | undefined
  }
  let known = new Map<string, Known>()
  const commandOf = (pid: string) => fs.readFileSync(`/proc/${pid}/cmdline`, "utf8")
  /** Answers the command line once its environment is known, or need not be. */
  const environmentOf = (pid: string, command: string): string | undefined => {
    if (command.includes(program)) return undefined
    // What runs in a container has its variables, and is a world of processes of its own.
    if (fs.readlinkSync(`/proc/${pid}/ns/pid`) !== ownWorld) return command
    const environment = fs.readFileSync(`/proc/${pid}/environ`, "utf8")
    // One that began another program in between has the environment of that.
    if (commandOf(pid) !== command) return undefined
    seen.add(`${command} ${environment}`)
    return command
  }
  const look = () => {
    const before = known
    known = new Map()
    for (const pid of fs.readdirSync("/proc")) {
      if (!/^\d+$/.test(pid) || Number(pid) === process.pid) continue
      const { age, command: last } = before.get(pid) ?? { age: 0, command: undefined }
      known.set(pid, { age: age + 1, command: last })
      const isDue = age % 40 === 0
      if (age > 80 && !isDue) continue
      try {
        const command = commandOf(pid)
        seen.add(command)
        if (command === last && !isDue) continue
        known.set(pid, { age: age + 1, command: environmentOf(pid, command) })
      } catch {
        // It ended, or is none of ours.
      }
    }
  }
  const timer = setInterval(look, 25)
  return { seen, stop: () => clearInterval(timer) }
}

const world = Effect.gen(function* () {
  const base = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
      // The servers' user walks through it.
      fs.chmodSync(folder, 0o755)
      return folder
    }),
    (folder) => Effect.promise(() => sweep(folder))
  )
  const url = yield* migratedDatabase
  const sql = yield* Effect.acquireRelease(
    Effect.sync(() => postgres(Redacted.value(url), { max: 1, onnotice: () => {} })),
    (client) => Effect.promise(() => client.end({ timeout: 1 }))
  )
  const server = yield* Effect.acquireRelease(
    Effect.sync(() => postgres(inject("databaseUrl"), { max: 1, onnotice: () => {} })),
    (client) => Effect.promise(() => client.end({ timeout: 1 }))
  )
  return { base, url: Redacted.value(url), sql, server, collector: yield* collector }
})

/** Every column of every table, as text and as the bytes it is stored from. */
const dump = async (sql: postgres.Sql): Promise<string> => {
  const columns = await sql<ReadonlyArray<{ table_name: string; column_name: string; data_type: string }>>`
    select table_name, column_name, data_type from information_schema.columns where table_schema = 'public'`
  assert.isAbove(columns.length, 60)
  let text = ""
  for (const { table_name, column_name, data_type } of columns) {
    const shown =
      data_type === "bytea"
        ? `encode("${column_name}", 'escape') || ' ' || encode("${column_name}", 'hex')`
        : `"${column_name}"::text`
    const rows = await sql.unsafe(
      `select ${shown} as value from "${table_name}" where "${column_name}" is not null`
    )
    text += `\n${table_name}.${column_name}:\n${rows.map(({ value }) => value).join("\n")}`
  }
  const queries = await sql`select query from pg_stat_activity`
  return `${text}\n${queries.map(({ query }) => query).join("\n")}`
}

it.live(
  "secrets that went through the whole system are found nowhere but where they belong",
  () =>
    Effect.gen(function* () {
      const { base, url, sql, server, collector } = yield* world
      const canaries = new Canaries()
      const far = yield* objectStore
      const engine = yield* containerEngine
      const provider = yield* standIn
      const stripe = yield* stripeStandIn
      fs.writeFileSync(path.join(base, "authority.pem"), far.caPem)
      const sealingKey = randomBytes(32)
      const keys = `canary:${canaries.add("key of the ring", sealingKey.toString("base64"))}`
      canaries.add("key of the ring in hex", sealingKey.toString("hex"))
      const [port, metricsPort, edgePort, edgeHttpPort] = yield* Effect.promise(() =>
        Promise.all([freePort(), freePort(), freePort(), freePort()])
      )

      let log = ""
      let child: ChildProcess | undefined
      const processes = watchProcesses()
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          processes.stop()
          child?.kill("SIGKILL")
        })
      )
      const answers: Array<string> = []
      let token: string | null = null
      const send = async (
        method: string,
        target: string,
        body?: unknown,
        headers: Record<string, string> = {}
      ) => {
        const response = await fetch(`http://127.0.0.1:${port}${target}`, {
          method,
          headers: {
            ...(token === null ? {} : { authorization: `Bearer ${token}` }),
            ...(body === undefined ? {} : { "content-type": "application/json" }),
            // One that was kept open may be closed by the server at the moment at which the next request is sent.
            connection: "close",
            ...headers
          },
          ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
          signal: AbortSignal.timeout(60_000)
        })
        const text = await response.text()
        // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
        const json: any = /json/.test(response.headers.get("content-type") ?? "")
          ? JSON.parse(text)
          : undefined
        return { status: response.status, text, json }
      }
      /** For answers that have no business to hold a secret. */
      const call = async (...request: Parameters<typeof send>) => {
        const answer = await send(...request)
        answers.push(`${request[0]} ${request[1]} ${answer.status}\n${answer.text}`)
        return answer
      }
      const upstream = {
        name: "provider",
        dialect: "openai",
        address: provider.url,
        model: canaries.make("real-model"),
        key: canaries.make("key-of-a-provider"),
        prices: { input: 1, output: 1 }
      }
      const start = async () => {
        child = spawn(process.execPath, [program, "up", "--no-apply"], {
          cwd: base,
          env: {
            PATH: process.env["PATH"],
            NODE_EXTRA_CA_CERTS: path.join(base, "authority.pem"),
            SVC_DATA_DIR: path.join(base, "data"),
            XDG_CONFIG_HOME: path.join(base, "config"),
            SVC_DATABASE_URL: url,
            SVC_ENCRYPTION_KEYS: keys,
            SVC_PORT: String(port),
            SVC_METRICS_PORT: String(metricsPort),
            SVC_EDGE_HTTPS_PORT: String(edgePort),
            SVC_EDGE_HTTP_PORT: String(edgeHttpPort),
            SVC_RATE_LIMIT: "100000",
            SVC_CONTAINER_SOCKET: engine.socket,
            SVC_REGISTRIES: engine.registry,
            SVC_AI_UPSTREAMS: JSON.stringify({ "svc/fast": [upstream] }),
            SVC_STRIPE_URL: stripe.url,
            SVC_OTLP_URL: collector.url,
            SVC_LOG_LEVEL: "trace"
          },
          stdio: ["ignore", "pipe", "pipe"]
        })
        for (const stream of [child.stdout, child.stderr]) {
          stream?.on("data", (chunk: Buffer) => (log += chunk.toString()))
        }
        await until("serving", async () => (await send("GET", "/v1/health")).status === 200)
        await until("started", async () => log.includes("Ctrl-C"))
      }
      const stop = (signal: NodeJS.Signals) =>
        new Promise<void>((resolve) => {
          child?.once("exit", () => resolve())
          child?.kill(signal)
        })

      yield* Effect.promise(async () => {
        await start()
        const firstKey = canaries.add("first API key", /svc_[0-9a-f]{40}/.exec(log)?.[0] ?? "")
        // It is shown once, to whoever started it for the first time.
        log = log.replace(firstKey, "")
        const stored = fs.readFileSync(path.join(base, "config", "svc", "credentials.json"), "utf8")
        const session = canaries.add("session", /svcs_[0-9a-f]+/.exec(stored)?.[0] ?? "")
        token = session

        const made = await send(
          "POST",
          "/v1/orgs/main/api-keys",
          { name: "ci" },
          { "idempotency-key": "key-1" }
        )
        assert.strictEqual(made.status, 201)

        // An invitation's token is in its mail alone.
        assert.strictEqual((await call("POST", "/v1/orgs", { name: "Acme", slug: "acme" })).status, 201)
        const guest = { email: "guest@example.test", role: "member" }
        const invited = await call("POST", "/v1/orgs/acme/invitations", guest, {
          "idempotency-key": "guest-1"
        })
        assert.strictEqual(invited.status, 201)
        const mailFolder = path.join(base, "data", "mail")
        const mails = () =>
          (fs.existsSync(mailFolder) ? fs.readdirSync(mailFolder) : []).filter((file) =>
            file.endsWith(".eml")
          )
        await until("the mail is there", async () => mails().length === 1)
        const mail = fs
          .readFileSync(path.join(mailFolder, mails()[0] ?? ""), "utf8")
          .replaceAll("=\r\n", "")
          .replaceAll("=3D", "=")
        const [, invitation] = /https?:\/\/\S*?([A-Za-z0-9_-]{30,})/.exec(mail) ?? []
        canaries.add("token of an invitation", invitation ?? "")
        token = canaries.add("API key", made.json.key)
        assert.strictEqual((await call("GET", "/v1/me")).status, 200)

        // Sealed values of an environment, a cache and a database; shown once, and to who sends the same request again.
        await call("POST", "/v1/orgs/main/projects", { name: "Shop", slug: "shop" })
        const values = [
          canaries.make("variable"),
          canaries.add("variable", `cañary/${randomBytes(9).toString("hex")}+"&\n{}`)
        ]
        const vars = values.map((value, i) => ({ key: `SECRET_${i}`, value }))
        assert.strictEqual((await call("PUT", "/v1/orgs/main/projects/shop/env", { vars })).status, 200)
        assert.include((await send("GET", "/v1/orgs/main/projects/shop/env")).text, values[0] ?? "none")
        const passwordIn = (answer: { readonly json: { readonly connectionString: string } }) =>
          decodeURIComponent(new URL(answer.json.connectionString).password)
        const cache = { name: "one", sku: "cache-n1", region: "local" }
        const create = () =>
          send("POST", "/v1/orgs/main/projects/shop/caches", cache, { "idempotency-key": "cache-1" })
        const [created, replayed] = [await create(), await create()]
        assert.strictEqual(passwordIn(created), passwordIn(replayed))
        canaries.add("password of a cache", passwordIn(created))
        const provisioned = await send("POST", "/v1/orgs/main/projects/shop/database", {})
        canaries.add("password of a database", passwordIn(provisioned))
        const cachePath = `/v1/orgs/main/projects/shop/caches/${created.json.id}`
        canaries.add("password of a cache", passwordIn(await send("POST", `${cachePath}/credentials/rotate`)))
        canaries.add(
          "password of a database",
          passwordIn(await send("POST", "/v1/orgs/main/projects/shop/database/rotate"))
        )

        // Prompts, answers, and the words of a provider that fails.
        const gateways = "/v1/orgs/main/projects/shop/ai-gateways"
        const gateway = { name: "chat", allowedModels: ["svc/fast"], monthlyBudgetUsd: 1, maxRetries: 0 }
        const { json: chat } = await call("POST", gateways, gateway)
        const gatewayKey = canaries.add(
          "key of a gateway",
          (await send("POST", `${gateways}/${chat.id}/keys`, { name: "app" })).json.secret
        )
        const prompt = canaries.make("prompt")
        const complete = (more: object, signal: AbortSignal | null = null) =>
          fetch(`http://127.0.0.1:${port}/v1/runtime/ai/chat/chat/completions`, {
            method: "POST",
            headers: { authorization: `Bearer ${gatewayKey}`, "content-type": "application/json" },
            body: JSON.stringify({
              model: "svc/fast",
              messages: [{ role: "user", content: prompt }],
              ...more
            }),
            signal
          })
        const answer = canaries.make("answer")
        provider.behave(says([answer]))
        assert.include(await (await complete({})).text(), answer)
        assert.include(await (await complete({ stream: true })).text(), answer)
        provider.behave(endless(answer))
        const leave = new AbortController()
        await complete({ stream: true }, leave.signal)
        leave.abort()
        provider.behave(refuses(400, `${canaries.make("words-of-a-provider")} ${prompt}`))
        const malformed = { messages: [{ role: "user", content: { prompt } }] }
        for (const more of [{}, malformed, { [prompt.slice(0, 3)]: prompt }, { temperature: prompt }])
          answers.push(await (await complete(more)).text())
        provider.behave(refuses(500, `${canaries.make("words-of-a-provider")} ${prompt}`))
        answers.push(await (await complete({})).text())
        await call("GET", `${gateways}/${chat.id}/requests`)
        await call("GET", `${gateways}/${chat.id}`)

        // Keys of Stripe: one that is refused, one that works, one that takes its place, and the secrets of webhooks.
        const payments = "/v1/orgs/main/projects/shop/payments"
        const stripeKey = () => canaries.add("key of Stripe", stripe.key(usualRights))
        const signing = () => canaries.add("secret of webhooks", `whsec_${randomBytes(16).toString("hex")}`)
        const connect = (secretKey: string, webhookSecret: string) =>
          call(
            "PUT",
            payments,
            {
              secretKey,
              webhookSecret,
              credentialScopes: ["products:write", "customers:write"],
              allowedRedirectOrigins: []
            },
            { authorization: `Bearer ${session}` }
          )
        const full = canaries.add("key of Stripe", `sk_live_${randomBytes(12).toString("hex")}`)
        const lost = canaries.add("key of Stripe", `rk_test_${randomBytes(12).toString("hex")}`)
        for (const bad of [full, lost]) assert.strictEqual((await connect(bad, signing())).status, 422)
        const webhookSecret = signing()
        const [works, next] = [stripeKey(), stripeKey()]
        const { json: connected } = await connect(works, webhookSecret)
        assert.strictEqual(connected.status, "ready")
        assert.strictEqual((await call("POST", `${payments}/products`, { name: "Pro" })).status, 201)
        const event = stripe.event("product.updated", stripe.account().of("products")[0] ?? {})
        const hooked = await call("POST", new URL(connected.webhookUrl).pathname, event, {
          "stripe-signature": stripe.sign(event, webhookSecret)
        })
        assert.strictEqual(hooked.status, 200)
        const unsigned = await call("POST", new URL(connected.webhookUrl).pathname, event, {
          "stripe-signature": stripe.sign(event, signing())
        })
        assert.strictEqual(unsigned.status, 400)
        stripe.revoke(works)
        assert.strictEqual((await call("POST", `${payments}/customers`, {})).status, 409)
        assert.strictEqual((await connect(next, signing())).status, 200)
        await call("GET", `${payments}/events`)
        await call("GET", "/v1/orgs/main/manifest")

        // Variables of executions and passwords for their images, right and wrong.
        const executions = "/v1/orgs/main/projects/shop/executions"
        const execute = async (password: string, env: Record<string, string>) => {
          const { json, status } = await call("POST", executions, {
            image: engine.image,
            command: sh('[ -n "$TOKEN" ] && echo has it && busybox sleep 1'),
            region: "local",
            resources: { cpus: 0.5, memoryMb: 64 },
            env: { PATH: "/bin", ...env },
            imagePullCredentials: { registry: engine.registry, username: registryUser, password }
          })
          assert.strictEqual(status, 202)
          await until("the execution ends", async () => {
            const shown = await call("GET", `${executions}/${json.id}`)
            return shown.json.cleanupStatus === "confirmed"
          })
          await call("GET", `/v1/orgs/main/resources/${json.id}/events?limit=100`)
          const printed = await call("GET", `${executions}/${json.id}/logs`)
          return [(await call("GET", `${executions}/${json.id}`)).json.status, printed.json.items[0]?.text]
        }
        const variable = { TOKEN: canaries.make("variable-of-an-execution") }
        assert.deepStrictEqual(
          await execute(canaries.add("password of a registry", registryPassword), variable),
          ["succeeded", "has it\n"]
        )
        assert.deepStrictEqual(await execute(canaries.make("wrong-password"), variable), [
          "failed",
          undefined
        ])

        // A branch of it, and the data that it takes the place of: an owner's to ask for.
        const key = token
        token = session
        await call("POST", "/v1/orgs/main/projects/shop/environments", { slug: "staging" })
        const { json: database } = await call("GET", "/v1/orgs/main/projects/shop/database")
        const branchesPath = `/v1/orgs/main/projects/shop/databases/${database.id}/branches`
        const { json: branch } = await call("POST", branchesPath, {
          name: "copy",
          environment: "staging",
          region: "local",
          sku: "db-n1",
          source: { kind: "current" }
        })
        await until(
          "a branch is ready",
          async () => (await call("GET", `${branchesPath}/${branch.id}`)).json.connectionReady
        )
        canaries.add(
          "password of a branch",
          passwordIn(await send("POST", `${branchesPath}/${branch.id}/rotate`))
        )
        await call("POST", `${branchesPath}/${branch.id}/promote`)
        await until(
          "a branch is promoted",
          async () => (await call("GET", `${branchesPath}/${branch.id}`)).json.status === "promoted"
        )
        token = key

        // Credentials of object storage: accepted, refused, and tried again when the storage says all it was sent.
        const secretAccessKey = canaries.add("storage key", far.credentials.secretAccessKey)
        const sessionToken = canaries.make("storage-session")
        const bucket = { name: "offsite", endpoint: far.endpoint, bucket: far.bucket }
        const opened = { ...bucket, credentials: { ...far.credentials, secretAccessKey, sessionToken } }
        const offsite = await call("POST", "/v1/orgs/main/backup-destinations", opened)
        assert.strictEqual(offsite.status, 201, offsite.text)
        const wrongKey = { accessKeyId: far.credentials.accessKeyId, secretAccessKey: canaries.make("wrong") }
        const refusal = await call("POST", "/v1/orgs/main/backup-destinations", {
          ...bucket,
          name: "wrong",
          credentials: wrongKey
        })
        assert.strictEqual(refusal.status, 422)
        far.trouble = ({ headers }) => ({
          status: 400,
          text: `<Error><Code>${sessionToken}</Code><Message>${JSON.stringify(headers)}</Message></Error>`
        })
        const echoed = await call("POST", `/v1/orgs/main/backup-destinations/${offsite.json.id}/test`)
        assert.strictEqual(echoed.status, 422)
        far.trouble = () => undefined
        await call("GET", `/v1/orgs/main/resources/${offsite.json.id}/events`)

        // Plans that can be applied, and every way in which one cannot.
        const project = (more: object) => ({
          name: "Shop",
          slug: "shop",
          runtimeClass: "scale-to-zero",
          ...more
        })
        const document = (more: object) => ({ version: 1, organization: "main", projects: [project(more)] })
        const env = { SECRET_0: "****", PLANNED: canaries.make("planned") }
        const planned = await call("POST", "/v1/orgs/main/manifest/plan", document({ env }))
        assert.strictEqual(planned.json.summary.update, 1)
        assert.strictEqual(
          (await call("POST", "/v1/orgs/main/manifest/apply", { planId: planned.json.planId })).status,
          202
        )
        const applied = { manifest: document({ env: { ...env, APPLIED: canaries.make("applied") } }) }
        assert.strictEqual((await call("POST", "/v1/orgs/main/manifest/apply", applied)).status, 202)
        const refusedPayments = {
          secretKey: canaries.make("processor"),
          webhookSecret: canaries.make("processor"),
          credentialScopes: [],
          allowedRedirectOrigins: []
        }
        const bad = canaries.make("refused")
        const refused: ReadonlyArray<readonly [body: unknown, yaml?: true]> = [
          [document({ customerPayments: [refusedPayments] })],
          [document({ env: { lower: bad } })],
          [document({ env: { NUMBER: 1, LIST: [bad] } })],
          [document({ env: { LONG: bad.repeat(5_000) } })],
          [document({ env: { NUL: `${bad}\0` } })],
          [document({ environments: { staging: { env: { A: bad } } } })],
          [document({ customerPayments: [{ secretKey: [bad] }] })],
          [`{"env": {"A": "${bad}" "B"}}`],
          [`{"env": "${bad}`],
          [`${bad}`],
          [`env:\n  A: ${bad}\n B: 1\n`, true],
          [`env: {A: ${bad}, B: ]\n`, true],
          [`env:\n  A: "${bad}\n`, true],
          [`env:\n  - ${bad}\n  x: ${bad}\n`, true],
          [`env: ${bad}: ${bad}: x\n`, true],
          [`A: 1\n${bad}\nB: 2\n`, true],
          [`%${bad} x\n---\nA: 1\n`, true],
          [`A: &${bad} 1\n`, true],
          [`A: !${bad} 1\n`, true],
          [`A: "\\q${bad}"\n`, true],
          [`A: |${bad}\n  x\n`, true],
          [`\t${bad}: "x\n`, true]
        ]
        for (const [body, yaml] of refused) {
          const headers = yaml === undefined ? {} : { "content-type": "application/yaml" }
          const plan = await call("POST", "/v1/orgs/main/manifest/plan", body, headers)
          assert.isTrue(
            plan.status >= 400 || plan.json.blockers.length > 0,
            `${JSON.stringify(body)} was taken`
          )
          const whole = typeof body === "string" ? body : { manifest: body }
          const apply = await call("POST", "/v1/orgs/main/manifest/apply", whole, headers)
          assert.isAtLeast(apply.status, 400, JSON.stringify(body))
        }

        // Requests that go wrong.
        const wrong = canaries.make("refused")
        assert.strictEqual(
          (await call("PUT", "/v1/orgs/main/projects/shop/env", { vars: [{ key: "low", value: wrong }] }))
            .status,
          422
        )
        assert.strictEqual(
          (await call("PUT", "/v1/orgs/main/projects/shop/env", { vars: [{ key: "A", value: [wrong] }] }))
            .status,
          422
        )
        assert.strictEqual(
          (await call("PUT", "/v1/orgs/main/projects/shop/env", `{"vars": "${wrong}`)).status,
          400
        )
        const right = token
        for (const stranger of [`svc_${randomBytes(20).toString("hex")}`, canaries.make("stranger")]) {
          token = canaries.add("unknown credential", stranger)
          assert.strictEqual((await call("GET", "/v1/orgs/main/projects")).status, 401)
        }
        token = right

        // Servers that cannot be put right: what stands in their way is a file where their folder should be.
        const listed = await call("GET", "/v1/orgs/main/resources?limit=100")
        const servers: ReadonlyArray<{ uid: string; kind: string }> = listed.json.items.filter(
          ({ kind }: { kind: string }) => kind === "Cache" || kind === "Database"
        )
        assert.strictEqual(servers.length, 2)
        const folderOf = ({ uid, kind }: { uid: string; kind: string }) =>
          path.join(base, "data", kind === "Cache" ? "caches" : "databases", uid)
        for (const one of servers) {
          // The control plane is quick to make a folder anew.
          await until("a file is in its place", async () => {
            killNaming(one.uid)
            fs.rmSync(folderOf(one), { recursive: true, force: true, maxRetries: 10 })
            fs.writeFileSync(folderOf(one), "")
            return true
          })
          await call("POST", `/v1/orgs/main/resources/${one.uid}/retry`)
        }
        await until("both fail", async () => {
          const { json } = await send("GET", "/v1/orgs/main/resources?limit=100")
          const failed = json.items.filter(
            ({ lastError }: { lastError: string | null }) => lastError !== null
          )
          return servers.every(({ uid }) => failed.some((one: { uid: string }) => one.uid === uid))
        })
        for (const { uid } of servers) {
          await call("GET", `/v1/orgs/main/resources/${uid}`)
          const events = await call("GET", `/v1/orgs/main/resources/${uid}/events?limit=100`)
          assert.include(events.text, "ReconcileFailed")
        }
        canaries.absent("the store", await dump(sql))
        for (const one of servers) fs.rmSync(folderOf(one), { force: true })

        // The store goes away for a while, which is logged with its cause.
        const before = log.length
        const name = new URL(url).pathname.slice(1)
        await server.unsafe(`alter database ${name} allow_connections false`)
        await sql`select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid()`
        await until("it is logged", async () => {
          await call("PUT", "/v1/orgs/main/projects/shop/env", { vars })
          return log.length > before
        })
        await server.unsafe(`alter database ${name} allow_connections true`)
        await until("it is over", async () => (await call("GET", "/v1/orgs/main/projects")).status === 200)
        await until("traces and logs are sent", async () =>
          [/\/v1\/traces .*Manifests\.plan/s, /\/v1\/logs /].every((sent) =>
            collector.received.some((one) => sent.test(`${one.path} ${one.body}`))
          )
        )

        // A second process finds everything again: what it logs when it starts is looked at whole.
        await stop("SIGKILL")
        await start()
        for (const headers of [{}, { accept: "application/yaml" }]) {
          const exported = await call("GET", "/v1/orgs/main/manifest", undefined, headers)
          assert.include(exported.text, "SECRET_0")
        }
        await call("GET", "/v1/spec")
        const { json } = await call("GET", "/v1/orgs/main/resources?limit=100")
        for (const { uid } of json.items) {
          await call("GET", `/v1/orgs/main/resources/${uid}`)
          await call("GET", `/v1/orgs/main/resources/${uid}/events?limit=100`)
        }
        token = session
        await call("GET", "/v1/orgs/main/audit?limit=100")
        await call("GET", "/v1/orgs/main/api-keys")
        canaries.absent("the store", await dump(sql))
        const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text()
        assert.include(metrics, "svc_queue_depth")
        canaries.absent("the metrics page", metrics)

        const storage = `/v1/orgs/main/backup-destinations/${offsite.json.id}`
        assert.strictEqual((await call("DELETE", storage)).status, 200)
        assert.strictEqual((await call("DELETE", "/v1/orgs/main/projects/shop")).status, 200)
        await until("all gone", async () => {
          const { json } = await send("GET", "/v1/orgs/main/resources?limit=100")
          return json.items.length === 0
        })
        await stop("SIGTERM")
      })

      // What the platform keeps for itself is known to nobody else, so it is opened here.
      const rows = yield* Effect.promise(
        () =>
          sql<ReadonlyArray<{ name: string; key_id: string; sealed: Buffer }>>`select * from platform_secret`
      )
      assert.isAbove(rows.length, 2)
      for (const { name, key_id, sealed } of rows) {
        const opened = yield* Effect.flatMap(KeyRing, (ring) =>
          ring.open(platformPlace(name), { keyId: key_id, bytes: sealed })
        ).pipe(Effect.provide(KeyRing.layerOf(Redacted.make(keys))))
        const value = Redacted.value(opened)
        if (name === "certificate-authority") {
          const [, privateKey = ""] = /PRIVATE KEY-----\\n([^-]+)\\n-----END/.exec(value) ?? []
          for (const line of privateKey.split("\\n")) {
            if (line.length > 40) canaries.add("private key of the authority", line)
          }
        } else canaries.add(name, value)
      }
      assert.isAbove(canaries.size, 20)

      canaries.absent("the store, after everything was deleted", yield* Effect.promise(() => dump(sql)))
      canaries.absent("the log", log)
      assert.include(log, "The control plane serves")
      assert.isAbove(answers.length, 60)
      for (const answer of answers) canaries.absent("an answer", answer)
      const exported = collector.received.map(({ body }) => body).join("\n")
      canaries.absent("what a collector is sent", exported)
      const shown = [...processes.seen].join("\n")
      assert.include(shown, "redis-server")
      assert.include(shown, "postgres")
      canaries.absent("a command line or an environment", shown)
    }).pipe(Effect.scoped),
  1_200_000
)
