/** Files as kernels write them, and what is read from them. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { networkUsage } from "#src/metrics/host/containers.ts"
import { groupUsage } from "#src/metrics/host/group-usage.ts"
import { usageCounters, usageValues } from "#src/metrics/host/machine-values.ts"
import {
  ageSeconds,
  identityOf,
  processOf,
  processTable,
  processTree,
  treeUsage
} from "#src/metrics/host/process-usage.ts"
import { perSecond } from "#src/metrics/host/rates.ts"
import { serverUsage } from "#src/metrics/host/server-usage.ts"
import type { Usage } from "#src/metrics/host/usage.ts"

const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
  (made) => Effect.sync(() => fs.rmSync(made, { recursive: true, force: true }))
)
const write = (base: string, files: Readonly<Record<string, string>>) => {
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(base, name)), { recursive: true })
    fs.writeFileSync(path.join(base, name), text)
  }
  return base
}

const second = {
  "cpu.stat": "usage_usec 7250000\nuser_usec 5000000\nsystem_usec 2250000\nnr_periods 0\n",
  "cpu.max": "150000 100000\n",
  "cpu.pressure":
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=4000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
  "memory.stat": "anon 1048576\nfile 900000000\nkernel 70000\nshmem 524288\nfile_mapped 1\n",
  "memory.max": "536870912\n",
  "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=5000\n",
  "pids.current": "9\n",
  "io.stat":
    "254:0 rbytes=4096 wbytes=8192 rios=10 wios=20 dbytes=0 dios=0\n254:16 rbytes=1 wbytes=1 rios=1 wios=2 dbytes=0 dios=0\n"
}

it.effect("a group of version 2 is read, over all devices and without the page cache", () =>
  Effect.gen(function* () {
    const base = write(yield* folder, second)
    const group = { version: 2 as const, folders: new Map([["memory", base]]) }
    assert.deepStrictEqual(groupUsage(group), {
      cpuMs: 7250,
      cpus: 1.5,
      memoryBytes: 1572864,
      memoryLimitBytes: 536870912,
      processes: 9,
      reads: 11,
      writes: 22,
      cpuStalledUs: 4000,
      memoryStalledUs: 5000
    })
    write(base, { "cpu.max": "max 100000\n", "memory.max": "max\n", "io.stat": "" })
    const unlimited = groupUsage(group)
    assert.isUndefined(unlimited.cpus)
    assert.isUndefined(unlimited.memoryLimitBytes)
    assert.deepStrictEqual([unlimited.reads, unlimited.writes], [0, 0], "it has not touched a disk")
    fs.rmSync(path.join(base, "io.stat"))
    assert.isUndefined(groupUsage(group).reads, "nobody counts")
    fs.rmSync(base, { recursive: true })
    assert.deepStrictEqual(groupUsage(group), {}, "a group that is gone tells nothing")
  })
)

it.effect("a group of version 1 is read from the folder of each controller", () =>
  Effect.gen(function* () {
    const base = write(yield* folder, {
      "cpu/cpuacct.usage": "7250000000\n",
      "cpu/cpu.cfs_quota_us": "50000\n",
      "cpu/cpu.cfs_period_us": "100000\n",
      "memory/memory.stat":
        "cache 10018816\nrss 12582912\nrss_huge 0\nshmem 9138176\ntotal_rss 99999999999\n",
      "memory/memory.limit_in_bytes": "536870912\n",
      "pids/pids.current": "3\n",
      "blkio/blkio.throttle.io_serviced":
        "8:0 Read 4\n8:0 Write 6\n8:0 Sync 10\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 10\n8:16 Read 1\n8:16 Write 0\nTotal 11\n"
    })
    const folders = new Map(["cpu", "memory", "pids", "blkio"].map((one) => [one, path.join(base, one)]))
    assert.deepStrictEqual(groupUsage({ version: 1, folders }), {
      cpuMs: 7250,
      cpus: 0.5,
      memoryBytes: 21721088,
      memoryLimitBytes: 536870912,
      processes: 3,
      reads: 5,
      writes: 6
    })
    write(base, {
      "cpu/cpu.cfs_quota_us": "-1\n",
      "memory/memory.limit_in_bytes": "9223372036854771712\n",
      "blkio/blkio.throttle.io_serviced": "Total 0\n"
    })
    const { cpus, memoryLimitBytes, reads } = groupUsage({ version: 1, folders })
    assert.deepStrictEqual([cpus, memoryLimitBytes, reads], [undefined, undefined, undefined])
  })
)

/** A line as in proc_pid_stat(5); the name of the program is a hostile one. */
const stat = (
  pid: number,
  parent: number,
  ticks: readonly [number, number, number, number],
  began: number,
  state = "S"
) =>
  `${pid} (a) R 1 (b)) ${state} ${parent} 1 1 0 -1 4194304 0 0 0 0 ${ticks.join(" ")} 20 0 2 0 ${began} 1000 100 0\n`
const status = (own: number, shared: number) =>
  `Name:\tx\nVmRSS:\t  9999 kB\nRssAnon:\t  ${own} kB\nRssFile:\t  5000 kB\nRssShmem:\t  ${shared} kB\n`
const processes = {
  uptime: "1000.50 1900.00\n",
  "sys/kernel/random/boot_id": "boot-1\n",
  "10/stat": stat(10, 1, [100, 50, 30, 20], 50_050),
  "10/status": status(1000, 300),
  "11/stat": stat(11, 10, [10, 0, 0, 0], 60_000),
  "11/status": status(500, 800),
  "12/stat": stat(12, 11, [1, 0, 0, 0], 60_001),
  "12/status": status(1, 0),
  "13/stat": stat(13, 1, [9999, 0, 0, 0], 1),
  "14/stat": stat(14, 10, [9999, 0, 0, 0], 1, "Z")
}

it.effect(
  "without groups, a server is the first process and all that it began, with those that have ended",
  () =>
    Effect.gen(function* () {
      const procDir = write(yield* folder, processes)
      const first = processOf(procDir, 10)
      if (first === undefined) throw new Error("it is not found")
      const tree = processTree(first, processTable(procDir))
      assert.deepStrictEqual(tree.map(({ pid }) => pid).sort(), [10, 11, 12])
      assert.deepStrictEqual(treeUsage(procDir, tree), {
        cpuMs: 2110,
        memoryBytes: (1000 + 500 + 1 + 800) * 1024,
        processes: 6
      })
      assert.strictEqual(ageSeconds(procDir, first), 500)
      assert.strictEqual(identityOf(procDir, first), "boot-1/10/50050")
      assert.isUndefined(processOf(procDir, 14), "one that has ended and that nobody has asked for")
      assert.isUndefined(processOf(procDir, 15))
    })
)

it.effect(
  "a server is told by its group only while it is in it, and processor time by its processes where none counts it",
  () =>
    Effect.gen(function* () {
      const base = yield* folder
      const procDir = write(path.join(base, "proc"), processes)
      const tree = write(path.join(base, "tree"), {
        "key/memory.stat": "rss 4096\nshmem 0\n",
        "key/memory.limit_in_bytes": "8192\n",
        "key/cgroup.procs": "10\n11\n"
      })
      const place = { version: 1 as const, folders: new Map([["memory" as const, tree]]) }
      const server = {
        key: "key",
        uid: "key",
        standby: undefined,
        program: "redis" as const,
        folder: "",
        process: processOf(procDir, 10),
        run: "one",
        port: undefined
      }
      const expected: Usage = { memoryBytes: 4096, memoryLimitBytes: 8192, cpuMs: 2100 }
      assert.deepStrictEqual(serverUsage(procDir, place)(server), expected)
      write(tree, { "key/cgroup.procs": "11\n" })
      const outside = { cpuMs: 2110, memoryBytes: 2301 * 1024, processes: 6 }
      assert.deepStrictEqual(serverUsage(procDir, place)(server), outside)
      assert.deepStrictEqual(serverUsage(procDir, undefined)(server), outside)
      assert.deepStrictEqual(serverUsage(procDir, place)({ ...server, process: undefined }), {})
    })
)

it("the network of a container is all of its interfaces but the one to itself", () => {
  const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  999999       9    0    0    0     0          0         0   999999       9    0    0    0     0       0          0
  eth0:    1000      10    0    0    0     0          0         0      300       5    0    0    0     0       0          0
eth1:1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0
`
  assert.deepStrictEqual(networkUsage(text), { receivedBytes: 1001, transmittedBytes: 302 })
  assert.deepStrictEqual(networkUsage(""), {})
})

const counted = (atMs: number, counters: Readonly<Record<string, number | undefined>>, identity = "one") => ({
  atMs,
  identity,
  counters
})

it("a rate needs two looks at the same counter", () => {
  const before = counted(1_000, { a: 10 })
  assert.strictEqual(perSecond("a", before, counted(16_000, { a: 40 })), 2)
  assert.strictEqual(perSecond("a", before, counted(16_000, { a: 10 })), 0, "nothing has happened")
  assert.isUndefined(perSecond("a", undefined, counted(16_000, { a: 40 })))
  assert.isUndefined(perSecond("a", before, counted(16_000, { a: 9 })), "it has begun anew")
  assert.isUndefined(perSecond("a", before, counted(16_000, { a: 40 }, "two")), "it is another one")
  assert.isUndefined(perSecond("a", before, counted(16_000, { a: undefined })))
  assert.isUndefined(perSecond("a", before, counted(1_000, { a: 11 })), "no time has passed")
})

it("percents are of one processor, of what is allowed, and of the machine where nothing is", () => {
  const size = { cpus: 4, memoryBytes: 1_000 }
  const values = (usage: Usage) =>
    usageValues(
      usage,
      size,
      counted(0, { cpuMs: 0, reads: 0, cpuStalledUs: 0 }),
      counted(10_000, usageCounters(usage))
    )
  const used = { cpuMs: 15_000, reads: 50, cpuStalledUs: 1_000_000, memoryBytes: 300 }
  assert.deepInclude(values({ ...used, cpus: 2, memoryLimitBytes: 400 }), {
    "cpu.percent": 150,
    "cpu.pressure": 75,
    "cpu.stalled_percent": 10,
    "disk.read_iops": 5,
    "memory.pressure": 75,
    "memory.limit_bytes": 400
  })
  const unlimited = values(used)
  assert.deepInclude(unlimited, {
    "cpu.percent": 150,
    "cpu.pressure": 37.5,
    "memory.pressure": 30,
    "memory.limit_bytes": 1_000
  })
  assert.notProperty(unlimited, "disk.write_iops")
  assert.strictEqual(
    values({ ...used, cpus: 64 })["cpu.pressure"],
    37.5,
    "there are no more than the machine has"
  )
})
