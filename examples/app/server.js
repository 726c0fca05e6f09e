// A page of what the platform gives an app: a database, a cache, messages of a queue and calls by the clock.
//
//   npm run svc -- apply -f examples/app/svc.manifest.yaml
//   npm run svc -- deploy examples/app
import { createServer } from "node:http"
import { createClient } from "@redis/client"
import postgres from "postgres"
import { Webhook } from "standardwebhooks"
import { page } from "./page.js"

// Set by the platform. One of a server that is not ready yet is missing, and once it is, new instances are started.
const { DATABASE_URL, REDIS_URL, SVC_SIGNING_SECRET = "", SVC_ENVIRONMENT, PORT = "8080" } = process.env

const sql = DATABASE_URL ? postgres(DATABASE_URL, { max: 4, onnotice: () => {} }) : undefined
const tables = async () => {
  if (!sql) throw new Error("There is no database yet")
  await sql`create table if not exists visit (day date primary key default current_date, visits int not null)`
  await sql`create table if not exists message (id text primary key, body jsonb, at timestamptz default now())`
  await sql`create table if not exists run (id text primary key, at timestamptz default now())`
  return sql
}
let made
/** The database with its tables, which are made once; after a failure the next request tries again. */
const database = () => {
  made ??= tables().catch((error) => {
    made = undefined
    throw error
  })
  return made
}

const redis = REDIS_URL ? createClient({ url: REDIS_URL }) : undefined
redis?.on("error", (error) => console.error(`Cache: ${error.message}`))
redis?.connect().catch(() => {})

/** Made at most once a minute, whoever asks: what takes long is kept in the cache. */
const expensive = async () => {
  if (!redis?.isReady) throw new Error("There is no cache yet")
  const kept = await redis.get("expensive")
  if (kept !== null) return { madeAt: kept, fromCache: true }
  const madeAt = new Date().toISOString()
  await redis.set("expensive", madeAt, { EX: 60 })
  return { madeAt, fromCache: false }
}

const countVisit = (db) =>
  db`insert into visit (visits) values (1) on conflict (day) do update set visits = visit.visits + 1`

/** What each of the four says, or why it does not. */
const status = async () => {
  const ask = (look) =>
    look().then(
      (value) => ({ ok: true, ...value }),
      ({ message }) => ({ ok: false, message })
    )
  const [visits, cache, queue, cron] = await Promise.all([
    ask(async () => (await (await database())`select coalesce(sum(visits), 0)::int as visits from visit`)[0]),
    ask(expensive),
    ask(async () => ({
      last: (await (await database())`select * from message order by at desc limit 1`)[0] ?? null
    })),
    ask(async () => ({
      last: (await (await database())`select * from run order by at desc limit 1`)[0] ?? null
    }))
  ])
  return { environment: SVC_ENVIRONMENT ?? "none", database: visits, cache, queue, cron }
}

const bodyOf = async (request) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks).toString("utf8")
}

/** What the platform has sent; anybody else's calls are turned away. */
const fromPlatform = async (request) => {
  const body = await bodyOf(request)
  return new Webhook(SVC_SIGNING_SECRET).verify(body, request.headers)
}

const routes = {
  "GET /": async (request, response) => {
    // Health checks come here as well.
    if (request.headers.accept?.includes("text/html"))
      await database()
        .then(countVisit)
        .catch(() => {})
    response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(page(await status()))
  },
  "GET /status.json": async (_, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(await status()))
  },
  "POST /queues/greetings": async (request, response) => {
    const { messages } = await fromPlatform(request)
    const db = await database()
    // A message may come twice: its id tells.
    for (const { id, body } of messages)
      await db`insert into message (id, body) values (${id}, ${db.json(body)}) on conflict do nothing`
    // 2xx without more acknowledges all of them.
    response.writeHead(204).end()
  },
  "POST /jobs/tick": async (request, response) => {
    await fromPlatform(request)
    const db = await database()
    await db`insert into run (id) values (${request.headers["webhook-id"]}) on conflict do nothing`
    response.writeHead(204).end()
  }
}

const server = createServer((request, response) => {
  const route = routes[`${request.method} ${request.url?.split("?")[0]}`]
  if (route === undefined) return void response.writeHead(404).end("Not found\n")
  route(request, response).catch((error) => {
    console.error(`${request.method} ${request.url}: ${error.message}`)
    const isForged = error.constructor.name === "WebhookVerificationError"
    response.writeHead(isForged ? 401 : 500).end(isForged ? "Not signed by the platform\n" : "Not now\n")
  })
})
server.listen(Number(PORT), () => console.log(`Listening on ${PORT}`))

process.once("SIGTERM", () => {
  server.close(async () => {
    await sql?.end({ timeout: 5 })
    redis?.destroy()
  })
})
