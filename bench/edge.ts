/**
 * What the edge costs: requests through its HAProxy, with its own configuration, against HAProxy with one static
 * route, against Caddy with one (when it is installed), and against the app itself; and what ten thousand hosts cost. The
 * app is a HAProxy that answers by itself, so that it is not what is measured. Load comes from h2load (Debian package
 * nghttp2-client).
 *
 * On two busy cores the edge takes 1.2 to 1.6 times (HTTP/1.1) and 1.8 to 2.2 times (HTTP/2) the processor time of HAProxy
 * with one route, a third to a quarter of Caddy's, and 0.9 to 1.3 times as much with 10,000 hosts as with 10. Of HTTP/2's 15
 * microseconds, with parts of the configuration taken away one after another in one run: 8 are those of HAProxy with one
 * route; 2 find the target in maps and connect to it; 2 to 3 are the rules about hosts, headers, cookies and loops; 3 are the
 * line of the log, a third of them for its text. So 0.9 of the rate would need a log and rules that cost less than one
 * microsecond. None of them can go: without the log nobody is told of their requests, and what the rules keep out is tried
 * in `test/edge`.
 */
import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { startProxy } from "#test/edge/hostile/proxy.ts"
import { freePort, managedPorts } from "#test/setup/postgres.ts"
import { until } from "#test/setup/wait.ts"
import { cpuOf } from "./cpu.ts"
import { type Figure, median } from "./figures.ts"

const rounds = 5
const requests = 8_000
const host = "shop.apps.localhost"
const [manyHosts, manyCertificates] = [10_000, 3_000]

const protocols = {
  "HTTP/1.1": ["--h1", "-c", "16"],
  "HTTP/2": ["-c", "4", "-m", "8"]
} as const
type Protocol = keyof typeof protocols
const allProtocols = ["HTTP/1.1", "HTTP/2"] as const

interface Way {
  readonly name: string
  readonly url: string
  readonly port: number
  readonly pid: number
}
interface Run {
  /** Requests per second. */
  readonly rate: number
  readonly p99Ms: number
  /** Processor time of the proxy for each request, in microseconds. */
  readonly cpuUs: number
}

const load = async ({ name, url, port, pid }: Way, protocol: Protocol, file: string): Promise<Run> => {
  fs.rmSync(file, { force: true })
  const before = cpuOf(pid)
  const began = performance.now()
  const args = [...protocols[protocol], "-n", String(requests), `--connect-to=127.0.0.1:${port}`]
  const said = await new Promise<string>((resolve, reject) =>
    execFile("h2load", [...args, `--log-file=${file}`, url], (error, stdout) =>
      error === null ? resolve(stdout) : reject(error)
    )
  )
  const seconds = (performance.now() - began) / 1000
  const cpuUs = ((cpuOf(pid) - before) * 1e6) / requests
  if (!said.includes(`${requests} 2xx`)) throw new Error(`${name}: not all requests were answered:\n${said}`)
  const rate = Number(/, ([\d.]+) req\/s/.exec(said)?.[1] ?? requests / seconds)
  const times = fs
    .readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .map((line) => Number(line.split("\t")[2]))
    .sort((a, b) => a - b)
  return { rate, p99Ms: (times[Math.floor(times.length * 0.99)] ?? 0) / 1000, cpuUs }
}

const listens = (port: number) =>
  new Promise<boolean>((resolve) => {
    const socket = net.connect(port, "127.0.0.1", () => resolve(true)).once("error", () => resolve(false))
    socket.once("connect", () => socket.destroy())
  })

const residentMb = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

const defaults = `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
`

export const edge = async (): Promise<ReadonlyArray<Figure>> => {
  if (spawnSync("h2load", ["--version"]).error !== undefined) {
    console.log("  skipped: apt-get install -y --no-install-recommends nghttp2-client")
    return []
  }
  return Effect.runPromise(Effect.scoped(measured))
}

const measured = Effect.gen(function* () {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))
  yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(base, { recursive: true, force: true })))
  const start = (program: string, args: ReadonlyArray<string>, port: number) =>
    Effect.acquireRelease(
      Effect.promise(async () => {
        const env = { ...process.env, HOME: base, XDG_CONFIG_HOME: base, XDG_DATA_HOME: base }
        const child = spawn(program, args, { stdio: "ignore", env })
        await until(`${program} listens`, () => {
          if (child.exitCode !== null) throw new Error(`${program} ended by itself`)
          return listens(port)
        })
        return child
      }),
      (child: ChildProcess) => Effect.sync(() => void child.kill("SIGKILL"))
    )
  const [appPort, haproxyPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
  const configured = (name: string, text: string, port: number) => {
    fs.writeFileSync(path.join(base, name), text)
    return start("haproxy", ["-db", "-f", path.join(base, name)], port)
  }
  yield* configured(
    "app.cfg",
    `${defaults}frontend app\n  bind 127.0.0.1:${appPort}\n  http-request return status 200 content-type text/plain string "${"x".repeat(1000)}"\n`,
    appPort
  )

  const shop = { host, environment: "019aa000-0000-7000-8000-000000000001", port: appPort }
  const others = (count: number) =>
    Array.from({ length: count - 1 }, (_, index) => ({
      ...shop,
      host: `host-${index}.example`,
      environment: `019aa000-0000-7000-8001-${index.toString(16).padStart(12, "0")}`
    }))
  const few = yield* startProxy([shop, ...others(10)])
  const many = yield* startProxy([...others(manyHosts), shop], {
    moreCertificates: manyCertificates,
    agentPort: managedPorts.last - 1
  })
  const memory = { few: residentMb(few.pid), many: residentMb(many.pid) }

  const pem = path.join(few.dir, "fallback.pem")
  const plain = yield* configured(
    "plain.cfg",
    `${defaults}frontend plain
  bind 127.0.0.1:${haproxyPort} ssl crt ${pem} alpn h2,http/1.1
  default_backend app
backend app
  server app 127.0.0.1:${appPort}
`,
    haproxyPort
  )
  const withCaddy = spawnSync("caddy", ["version"], { stdio: "ignore" }).status === 0
  const caddyPort = withCaddy ? yield* Effect.promise(freePort) : 0
  const caddyFile = path.join(base, "Caddyfile")
  fs.writeFileSync(
    caddyFile,
    `{
  admin off
  auto_https off
  # Without HTTP/3: its UDP port is what marks this one as taken.
  servers {
    protocols h1 h2
  }
}
https://${host}:${caddyPort} {
  bind 127.0.0.1
  tls ${pem} ${pem}
  reverse_proxy 127.0.0.1:${appPort}
}
`
  )
  const caddy = withCaddy
    ? yield* start("caddy", ["run", "--config", caddyFile, "--adapter", "caddyfile"], caddyPort)
    : undefined
  const secure = (name: string, port: number, pid: number): Way => ({
    name,
    url: `https://${host}:${port}/`,
    port,
    pid
  })
  const ways: ReadonlyArray<Way> = [
    secure("haproxy", haproxyPort, plain.pid ?? 0),
    secure("edge", few.httpsPort, few.pid),
    secure("many", many.httpsPort, many.pid),
    ...(caddy === undefined ? [] : [secure("caddy", caddyPort, caddy.pid ?? 0)])
  ]
  const figures: Array<Figure> = []
  const log = path.join(base, "requests.log")
  for (const protocol of allProtocols) {
    const direct: Way = { name: "direct", url: `http://127.0.0.1:${appPort}/`, port: appPort, pid: 0 }
    const compared = protocol === "HTTP/1.1" ? [direct, ...ways] : ways
    const runs = new Map(compared.map(({ name }) => [name, [] as Array<Run>]))
    for (let round = 0; round <= rounds; round++)
      for (const way of compared) {
        const run = yield* Effect.promise(() => load(way, protocol, log))
        // The first one opens the connections to the app, and finds caches cold.
        if (round > 0) runs.get(way.name)?.push(run)
      }
    const of = (name: string) => runs.get(name) ?? []
    const shown = (name: string) => {
      const [rate, p99, cpu] = (["rate", "p99Ms", "cpuUs"] as const).map((key) =>
        median(of(name).map((run) => run[key]))
      )
      return `${name} ${Math.round(rate ?? 0)}/s, p99 ${p99?.toFixed(1)} ms, ${Math.round(cpu ?? 0)} µs`
    }
    const ratio = (key: keyof Run, a: string, b: string) =>
      median(of(a).map((run, round) => run[key] / (of(b)[round]?.[key] ?? 1)))
    const figure = (name: string, value: number, aim?: string, note?: string) =>
      figures.push({
        name: `${protocol}: ${name}`,
        value,
        unit: "x",
        ...(aim === undefined ? {} : { aim }),
        ...(note === undefined ? {} : { note })
      })
    figure(
      "edge / HAProxy with one route, req/s",
      ratio("rate", "edge", "haproxy"),
      ">= 0.9",
      `${shown("edge")}; ${shown("haproxy")}`
    )
    figure("p99, edge / HAProxy with one route", ratio("p99Ms", "edge", "haproxy"))
    figure("CPU of a request, HAProxy with one route / edge", ratio("cpuUs", "haproxy", "edge"))
    if (of("direct").length > 0)
      figure(
        "edge / the app itself without TLS, req/s",
        ratio("rate", "edge", "direct"),
        undefined,
        shown("direct")
      )
    if (of("caddy").length > 0)
      figure("CPU of a request, Caddy / edge", ratio("cpuUs", "caddy", "edge"), ">= 1", shown("caddy"))
    figure("10,000 hosts / 10, req/s", ratio("rate", "many", "edge"), "flat", shown("many"))
    figure("CPU of a request, 10,000 hosts / 10", ratio("cpuUs", "many", "edge"), "flat")
  }
  figures.push({
    name: "memory: 10,000 hosts and 3,000 certificates",
    value: memory.many,
    unit: "MB",
    note: `${memory.few.toFixed(0)} MB with 10 hosts and one certificate`
  })
  return figures
})
