/** A Postgres of its own in a temporary folder, from the bundled binaries. */
import { execFileSync, spawn } from "node:child_process"
import * as dgram from "node:dgram"
import * as fs from "node:fs"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { bundled } from "#src/infra/postgres/PostgresBinaries.ts"
import { testFolder } from "./folder.ts"
import { newData } from "./new-data.ts"

export interface TemporaryPostgres {
  /** Superuser's URL. */
  readonly url: string
  /** Stops the server and removes its folder. */
  readonly stop: () => void
  /** Ends the server, politely, at once, or by killing its first process; and starts it again. */
  readonly restart: (how: "fast" | "immediate" | "kill") => Promise<void>
}

/** Above the ports of managed servers, and below those that systems hand out to whoever asks for any. */
const [firstPort, portCount] = [30_000, 2_700]
let portsTried = Math.floor(Math.random() * portCount)

/**
 * A port that nobody listens on, and that no other process of tests is given while this one runs: what marks it as
 * taken is a UDP socket of the same number, of which there can be one and which goes with its process.
 */
export const freePort = async (): Promise<number> => {
  for (let tries = 0; tries < portCount; tries++) {
    const port = firstPort + (portsTried++ % portCount)
    if ((await isMine(port)) && (await isFree(port))) return port
  }
  throw new Error(`every port from ${firstPort} on is taken`)
}

/** Marks a port as this process's, unless it is another's. */
const isMine = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const mark = dgram.createSocket("udp4").unref()
    mark.once("error", () => mark.close(() => resolve(false)))
    mark.bind({ port, address: "127.0.0.1", exclusive: true }, () => resolve(true))
  })

const isFree = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const server = net.createServer()
    server.once("error", () => resolve(false))
    server.listen(port, "0.0.0.0", () => server.close(() => resolve(true)))
  })

/** Ports of managed servers come in blocks, which begin here and are this large. */
const [firstBlock, blockCount, blockSize] = [20_000, 66, 150]

/** In an order of its own, so that processes which begin at once do not all try the same. */
const claimBlock = async (): Promise<number> => {
  const begin = Math.floor(Math.random() * blockCount)
  for (let tries = 0; tries < blockCount; tries++) {
    const first = firstBlock + ((begin + tries) % blockCount) * blockSize
    if (await isMine(first)) return first
  }
  throw new Error(`every block of ports from ${firstBlock} on is taken`)
}

/**
 * For the managed servers of this process alone, whatever runs of tests there are on the machine: a port whose server is
 * down, or not up yet, is free for all who have the same range.
 */
const managedBlock = await claimBlock()
export const managedPorts = { first: managedBlock, last: managedBlock + blockSize - 1 }

/**
 * Most tests give up durability for speed, and benchmarks keep it. Tests that kill the server need what was committed
 * to outlive its processes; only a machine that loses power would need more, and waiting for the disk takes long.
 */
export interface PostgresOptions {
  readonly durable: boolean | "against kills"
}

/**
 * Nobody recovers this server or replicates it, so it logs the least. Its tables are too short-lived for statistics:
 * whether they were gathered before a statement was planned would be luck.
 */
const fast = [
  "synchronous_commit = off",
  "wal_level = minimal",
  "max_wal_senders = 0",
  "autovacuum = off",
  "io_method = sync"
]

export const startPostgres = async ({ durable }: PostgresOptions): Promise<TemporaryPostgres> => {
  const native = Option.getOrThrow(await bundled())
  const bin = path.join(native, "bin")
  const base = fs.mkdtempSync(path.join(durable === true ? os.tmpdir() : testFolder(), "svc-test-"))
  const data = path.join(base, "data")
  const owner = process.getuid?.() === 0 ? { uid: systemId("-u"), gid: systemId("-g") } : {}
  if (owner.uid !== undefined) fs.chownSync(base, owner.uid, owner.gid)
  const run = (program: string, args: ReadonlyArray<string>) =>
    execFileSync(program, args, { ...owner, cwd: base, stdio: ["ignore", "ignore", "inherit"] })
  /** The same, while this process goes on. */
  const runAside = (program: string, args: ReadonlyArray<string>) =>
    new Promise<void>((resolve, reject) =>
      spawn(program, args, { ...owner, cwd: base, stdio: ["ignore", "ignore", "inherit"] })
        .once("error", reject)
        .once("exit", (code) => (code === 0 ? resolve() : reject(new Error(`${program}: exit code ${code}`))))
    )
  await Effect.runPromise(
    newData(
      (program, args) =>
        Effect.as(
          Effect.promise(() => runAside(program, args)),
          { code: 0, output: "" }
        ),
      path.join(bin, "initdb"),
      ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
      data
    )
  )
  const port = await freePort()
  const settings = [
    `port = ${port}`,
    "listen_addresses = '127.0.0.1'",
    `unix_socket_directories = '${base}'`,
    "max_connections = 300",
    "shared_buffers = 256MB",
    ...(durable === true ? [] : ["fsync = off", "full_page_writes = off"]),
    ...(durable === false ? fast : [])
  ]
  fs.appendFileSync(path.join(data, "postgresql.conf"), settings.join("\n"))
  const control = path.join(bin, "pg_ctl")
  const start = () => run(control, ["-D", data, "-w", "-l", path.join(base, "log"), "start"])
  const halt = () => run(control, ["-D", data, "-m", "immediate", "-w", "stop"])
  start()
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    stop: () => {
      halt()
      fs.rmSync(base, { recursive: true, force: true })
    },
    restart: async (how) => {
      if (how === "kill") {
        const [pid] = fs.readFileSync(path.join(data, "postmaster.pid"), "utf8").split("\n")
        process.kill(Number(pid), "SIGKILL")
      } else await runAside(control, ["-D", data, "-m", how, "-w", "stop"])
      // After a kill the old backends still hold the shared memory for a moment.
      for (let tries = 0; ; tries++) {
        try {
          return await runAside(control, ["-D", data, "-w", "-l", path.join(base, "log"), "start"])
        } catch (error) {
          if (tries === 50) throw error
          await new Promise((resolve) => setTimeout(resolve, 100))
        }
      }
    }
  }
}

const systemId = (flag: "-u" | "-g") => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }))
