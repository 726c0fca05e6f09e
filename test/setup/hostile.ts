/** Clients that take from their own server what they can, and one that uses its own as usual meanwhile. */
import * as net from "node:net"
import * as tls from "node:tls"
import postgres from "postgres"

/** How a client reaches its server: the connection string, and the authority that it trusts. */
export interface Reach {
  readonly url: string
  readonly ca: string
}

const plain = ({ url }: Reach) => url.replace(/\?.*/, "")

const open = (reach: Reach, max: number) =>
  postgres(plain(reach), {
    ssl: { ca: reach.ca, rejectUnauthorized: true },
    max,
    connect_timeout: 30,
    fetch_types: false,
    onnotice: () => {}
  })

export interface Load {
  readonly answered: () => number
  readonly failures: ReadonlyArray<string>
  readonly stop: () => Promise<void>
}

/** The transactions of pgbench (its built-in script "TPC-B (sort of)"), by a few clients, each after the other. */
export const usualLoad = async (reach: Reach, clients = 2): Promise<Load> => {
  const sql = open(reach, clients)
  try {
    await sql`create table if not exists accounts (id int primary key, balance int not null)`
    await sql`create table if not exists history (account int, delta int, at timestamptz default now())`
    await sql`insert into accounts select n, 0 from generate_series(1, 1000) n on conflict do nothing`
  } catch (error) {
    await sql.end({ timeout: 5 })
    throw error
  }
  let [answered, going] = [0, true]
  const failures: Array<string> = []
  const work = async (client: number) => {
    for (let n = client; going; n += clients) {
      const id = 1 + ((n * 7919) % 1000)
      try {
        await sql.begin(async (tx) => {
          await tx`update accounts set balance = balance + 1 where id = ${id}`
          await tx`select balance from accounts where id = ${id}`
          await tx`insert into history (account, delta) values (${id}, 1)`
        })
        answered++
      } catch (error) {
        failures.push(String(error))
      }
    }
  }
  const all = Array.from({ length: clients }, (_, client) => work(client))
  return {
    answered: () => answered,
    failures,
    stop: async () => {
      going = false
      await Promise.all(all)
      await sql.end({ timeout: 5 })
    }
  }
}

/** What a client came to: how often its server, or whoever guards it, has cut it off. */
export interface Hostile {
  readonly cutOff: () => number
  readonly stop: () => Promise<void>
}

/** Does it again and again, whatever comes of it. */
const again = (clients: number, body: (stopped: AbortSignal) => Promise<void>): Hostile => {
  let [going, cutOff] = [true, 0]
  const stopping = new AbortController()
  const all = Array.from({ length: clients }, async () => {
    while (going) {
      try {
        await body(stopping.signal)
      } catch {
        cutOff++
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    }
  })
  return {
    cutOff: () => cutOff,
    stop: async () => {
      going = false
      stopping.abort()
      await Promise.all(all)
    }
  }
}

/** One value of most of a gigabyte, built in the memory of a backend. */
export const greedyStatement = (reach: Reach): Hostile =>
  again(1, async () => {
    const sql = open(reach, 1)
    try {
      await sql`set work_mem = '2GB'`
      await sql`select length(string_agg(repeat('x', 1000), '')) from generate_series(1, 900000)`
    } finally {
      await sql.end({ timeout: 0 })
    }
  })

/** More connections than there may be; those that say nothing cost the server a process each. */
export const connectionFlood = (reach: Reach, connections = 400): Hostile =>
  again(1, async () => {
    const { hostname, port } = new URL(reach.url)
    const sockets = Array.from({ length: connections }, () => {
      const socket = net.connect({ host: hostname, port: Number(port) })
      socket.on("error", () => undefined)
      return socket
    })
    await new Promise((resolve) => setTimeout(resolve, 1_000))
    for (const socket of sockets) socket.destroy()
    throw new Error("once more")
  })

/** Says these commands on one connection and gives it to the body. */
const toCache = async (
  reach: Reach,
  stopped: AbortSignal,
  body: (socket: tls.TLSSocket) => Promise<void>
): Promise<void> => {
  const { hostname, port, username, password } = new URL(reach.url)
  const socket = tls.connect({ host: hostname, port: Number(port), ca: reach.ca })
  const closed = new Promise<never>((_, reject) => {
    socket.once("error", reject)
    socket.once("close", () => reject(new Error("closed by the server")))
  })
  closed.catch(() => undefined)
  const end = () => socket.destroy(new Error("stopped"))
  stopped.addEventListener("abort", end)
  try {
    await Promise.race([new Promise<void>((resolve) => socket.once("secureConnect", resolve)), closed])
    socket.write(command("AUTH", decodeURIComponent(username), decodeURIComponent(password)))
    await Promise.race([body(socket), closed])
  } finally {
    stopped.removeEventListener("abort", end)
    socket.destroy()
  }
}
const command = (...words: ReadonlyArray<string>) =>
  `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("")}`

/** A value of 40 MB, asked for again and again on a connection that never reads. */
export const neverReading = (reach: Reach, clients = 2): Hostile =>
  again(clients, (stopped) =>
    toCache(reach, stopped, async (socket) => {
      socket.pause()
      socket.write(command("SETRANGE", "big", String(40_000_000), "x"))
      socket.write(command("GET", "big").repeat(60))
      // A connection that is not read does not tell that it was closed.
      await new Promise((resolve) => setTimeout(resolve, 500))
      throw new Error("once more")
    })
  )

/** A script that keeps all it makes. Its memory is none that the server counts. */
export const greedyScript = (reach: Reach): Hostile =>
  again(1, (stopped) =>
    toCache(reach, stopped, async (socket) => {
      const script =
        "local all = {} for i = 1, 4000 do all[i] = string.rep('x', 1000000) .. i end return #all"
      socket.write(command("EVAL", script, "0"))
      socket.resume()
      await new Promise<void>((resolve) => {
        socket.on("data", (chunk) => (chunk.toString().includes(":") ? resolve() : undefined))
      })
    })
  )
