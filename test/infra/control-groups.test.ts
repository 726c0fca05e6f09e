/**
 * Control groups: version 2 and the finding of both on folders that stand for the kernel's, with its rules about them;
 * what really holds a process, on this machine, as far as it has groups.
 */
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { type GroupSystem, placeGroups } from "#src/infra/host/control-group-place.ts"
import { controlGroups } from "#src/infra/host/control-groups.ts"
import { launched } from "#src/infra/host/launch.ts"
import { makeHolding, placeName } from "#src/infra/host/server-holding.ts"
import { uuid } from "#test/setup/fixtures.ts"

const temporary = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
  (folder) => Effect.sync(() => fs.rmSync(folder, { recursive: true, force: true }))
)

const fault = (code: string) => Object.assign(new Error(code), { code })

/** Folders in which writing means what it means to the kernel. */
const kernel = (base: string, isRoot: boolean) => {
  const tree = path.join(base, "tree")
  const procDir = path.join(base, "proc")
  fs.mkdirSync(path.join(procDir, "self"), { recursive: true })
  fs.mkdirSync(tree)
  const read = (...parts: ReadonlyArray<string>) => {
    const file = path.join(tree, ...parts)
    return fs.existsSync(file) ? fs.readFileSync(file, "utf8").trim() : ""
  }
  const procs = (group: string) => path.join(group, "cgroup.procs")
  /** Every group of a mounted tree. */
  const groups = (folder: string): ReadonlyArray<string> => [
    folder,
    ...fs
      .readdirSync(folder, { withFileTypes: true })
      .flatMap((entry) => (entry.isDirectory() ? groups(path.join(folder, entry.name)) : []))
  ]
  const system: GroupSystem = {
    procDir,
    isRoot,
    write: async (file, text) => {
      const group = path.dirname(file)
      if (path.basename(file) === "cgroup.subtree_control") {
        const holds = fs.existsSync(procs(group)) && fs.readFileSync(procs(group), "utf8").trim() !== ""
        // No internal processes, but in the one at the top of the machine.
        if (holds && group !== tree) throw fault("EBUSY")
        const now = text.replaceAll("+", "").split(" ")
        fs.writeFileSync(file, now.join(" "))
        return
      }
      if (path.basename(file) === "cgroup.procs") {
        for (const one of groups(tree).map(procs)) {
          if (!fs.existsSync(one)) continue
          const left = fs
            .readFileSync(one, "utf8")
            .split("\n")
            .filter((pid) => pid !== "" && pid !== text)
          fs.writeFileSync(one, left.map((pid) => `${pid}\n`).join(""))
        }
        fs.appendFileSync(file, `${text}\n`)
        return
      }
      fs.writeFileSync(file, text)
    },
    removeGroup: async (folder) => {
      if (!fs.existsSync(folder)) throw fault("ENOENT")
      if (fs.existsSync(procs(folder)) && fs.readFileSync(procs(folder), "utf8").trim() !== "")
        throw fault("EBUSY")
      fs.rmSync(folder, { recursive: true })
    }
  }
  /** Version 2, with a group of these processes that this one is in. */
  const unified = (own: string, pids: ReadonlyArray<number> = []) => {
    fs.writeFileSync(path.join(procDir, "self/mountinfo"), `30 24 0:26 / ${tree} rw - cgroup2 cgroup2 rw\n`)
    fs.writeFileSync(path.join(procDir, "self/cgroup"), `0::${own}\n`)
    const folders = own.split("/").map((_, i, all) => path.join(tree, ...all.slice(0, i + 1)))
    for (const folder of new Set([tree, ...folders])) {
      fs.mkdirSync(folder, { recursive: true })
      fs.writeFileSync(path.join(folder, "cgroup.controllers"), "cpuset cpu io memory pids\n")
      fs.writeFileSync(path.join(folder, "cgroup.subtree_control"), "")
      fs.writeFileSync(procs(folder), "")
    }
    fs.writeFileSync(procs(path.join(tree, own)), pids.map((pid) => `${pid}\n`).join(""))
  }
  return { procDir, read, system, tree, unified }
}

const server = uuid()
const limits = { memoryBytes: 512 * 2 ** 20, cpus: 1.5, processes: 90 }

/** New groups have the files that the kernel gives them; writing alone would not make these. */
const given = (group: string) => {
  fs.mkdirSync(group, { recursive: true })
  for (const name of ["cgroup.subtree_control", "cgroup.procs"]) fs.writeFileSync(path.join(group, name), "")
}

it.effect("with version 2, a process that is given a group moves out of the way of its servers' groups", () =>
  Effect.gen(function* () {
    const { read, system, tree, unified } = kernel(yield* temporary, false)
    const own = "/user.slice/run-7.scope"
    unified(own, [11, 12])
    given(path.join(tree, own, "svc-x"))
    yield* Effect.promise(async () => {
      const placed = await placeGroups("svc-x", system)
      if (!placed.usable) throw new Error(placed.why)
      const groups = controlGroups(placed.place, system)
      assert.strictEqual(read(own, "cgroup.procs"), "", "none is left where controllers are passed on")
      assert.strictEqual(read(own, "svc-control/cgroup.procs"), "11\n12")
      assert.strictEqual(read(own, "cgroup.subtree_control"), "memory cpu pids io")
      assert.strictEqual(read(own, "svc-x/cgroup.subtree_control"), "memory cpu pids io")

      const group = path.join(tree, own, "svc-x", server)
      given(group)
      fs.writeFileSync(path.join(group, "memory.swap.max"), "max")
      await groups.limit(server, limits)
      const values = ["memory.max", "memory.swap.max", "cpu.max", "cpu.weight", "pids.max"]
      assert.deepStrictEqual(
        values.map((name) => fs.readFileSync(path.join(group, name), "utf8")),
        ["536870912", "0", "150000 100000", "150", "90"]
      )
      fs.writeFileSync(path.join(group, "memory.stat"), "anon 1000\nfile 5\nshmem 24\n")
      fs.writeFileSync(path.join(group, "memory.events"), "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n")
      fs.writeFileSync(path.join(group, "cgroup.procs"), "77\n")
      assert.deepStrictEqual(await groups.look(server, 77), { inside: true, limits, heldBytes: 1024 })
      assert.isFalse((await groups.look(server, 78)).inside)
      assert.strictEqual(await groups.kills(server), 2)
      assert.deepStrictEqual(groups.joins(server), [path.join(group, "cgroup.procs")])
      assert.isFalse(await groups.remove(server), "a group with processes stays")
      fs.writeFileSync(path.join(group, "cgroup.procs"), "")
      assert.isTrue(await groups.remove(server))
      assert.isTrue(await groups.remove(server), "and to find none is success")

      // The next control plane of the same scope is in the group below from its beginning, or is moved there as well.
      const again = await placeGroups("svc-x", system)
      assert.deepStrictEqual(again, placed)
    })
  }).pipe(Effect.scoped)
)

it.effect(
  "with version 2, a unit that begins in svc-control has its servers beside that, and other units none",
  () =>
    Effect.gen(function* () {
      const first = kernel(yield* temporary, false)
      first.unified("/system.slice/svc.service/svc-control", [11])
      given(path.join(first.tree, "system.slice/svc.service/svc-x"))
      const second = kernel(yield* temporary, false)
      second.unified("/system.slice/svc.service", [11])
      yield* Effect.promise(async () => {
        const placed = await placeGroups("svc-x", first.system)
        assert.deepStrictEqual(placed.usable && [...placed.place.folders.values()], [
          ...Array(4).fill(path.join(first.tree, "system.slice/svc.service/svc-x"))
        ])
        assert.strictEqual(first.read("system.slice/svc.service/svc-control/cgroup.procs"), "11")
        const refused = await placeGroups("svc-x", second.system)
        assert.isFalse(refused.usable)
        assert.match(refused.usable ? "" : refused.hint, /DelegateSubgroup=svc-control/)
        assert.strictEqual(
          second.read("system.slice/svc.service/cgroup.subtree_control"),
          "",
          "nothing changed"
        )
      })
    }).pipe(Effect.scoped)
)

it.effect("with version 2, root takes the top of the tree and leaves the group that it is in alone", () =>
  Effect.gen(function* () {
    const { read, system, tree, unified } = kernel(yield* temporary, true)
    unified("/user.slice/session-1.scope", [11])
    given(path.join(tree, "svc-x"))
    yield* Effect.promise(async () => {
      const looked = await placeGroups("svc-x", system, "look")
      assert.isTrue(looked.usable)
      assert.strictEqual(read("cgroup.subtree_control"), "", "a look changes nothing")
      const placed = await placeGroups("svc-x", system)
      assert.deepStrictEqual(placed, looked)
      assert.strictEqual(read("cgroup.subtree_control"), "memory cpu pids io")
      assert.strictEqual(read("user.slice/session-1.scope/cgroup.procs"), "11")
    })
  }).pipe(Effect.scoped)
)

it.effect(
  "a limit is not lowered under what is held, and one that is refused keeps no other from being set",
  () =>
    Effect.gen(function* () {
      const { read, system, tree, unified } = kernel(yield* temporary, true)
      unified("/init.scope")
      given(path.join(tree, "svc-x"))
      yield* Effect.promise(async () => {
        const refusing: GroupSystem = {
          ...system,
          write: (file, text) =>
            path.basename(file) === "cpu.max" ? Promise.reject(fault("EINVAL")) : system.write(file, text)
        }
        const placed = await placeGroups("svc-x", refusing)
        assert.isTrue(placed.usable)
        if (!placed.usable) return
        const groups = controlGroups(placed.place, refusing)
        const group = path.join(tree, "svc-x", server)
        const limit = async (memoryBytes: number, processes: number) => {
          const done = await Promise.allSettled([groups.limit(server, { memoryBytes, cpus: 1, processes })])
          assert.deepStrictEqual(
            done.map((one) => one.status === "rejected" && `${one.reason}`),
            ["Error: EINVAL"]
          )
          return [read("svc-x", server, "memory.max"), read("svc-x", server, "pids.max")]
        }
        assert.deepStrictEqual(await limit(1_000, 10), ["1000", "10"])
        fs.writeFileSync(path.join(group, "memory.stat"), "anon 700\nfile 250\nshmem 100\n")
        assert.deepStrictEqual(await limit(800, 11), ["1000", "11"], "it holds 800, and needs a little more")
        assert.deepStrictEqual(await limit(900, 12), ["900", "12"])
        assert.deepStrictEqual(await limit(2_000, 13), ["2000", "13"])
      })
    })
)

it.effect("with version 1, each controller has its own tree, and what is not there is not needed", () =>
  Effect.gen(function* () {
    const base = yield* temporary
    const { procDir, read, system, tree } = kernel(base, true)
    // As in a container: the tree is mounted from the container's own group on.
    fs.writeFileSync(
      path.join(procDir, "self/mountinfo"),
      [
        `30 24 0:26 /docker/1 ${tree}/memory rw - cgroup cgroup rw,memory`,
        `31 24 0:27 /docker/1 ${tree}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct`,
        `32 24 0:28 / ${tree}/unified rw - cgroup2 cgroup2 rw`
      ].join("\n")
    )
    fs.writeFileSync(path.join(procDir, "self/cgroup"), "4:memory:/docker/1\n1:cpu,cpuacct:/docker/1\n0::/\n")
    const memory = `memory/svc-x/${server}`
    for (const folder of [memory, `cpu,cpuacct/svc-x/${server}`])
      fs.mkdirSync(path.join(tree, folder), { recursive: true })
    yield* Effect.promise(async () => {
      const placed = await placeGroups("svc-x", system)
      if (!placed.usable) throw new Error(placed.why)
      assert.deepStrictEqual([...placed.place.folders.keys()], ["memory", "cpu"])
      const groups = controlGroups(placed.place, system)
      fs.writeFileSync(path.join(tree, memory, "memory.memsw.limit_in_bytes"), "9223372036854771712")
      await groups.limit(server, limits)
      assert.strictEqual(read(memory, "memory.limit_in_bytes"), "536870912")
      assert.strictEqual(read(memory, "memory.memsw.limit_in_bytes"), "536870912")
      assert.strictEqual(read(`cpu,cpuacct/svc-x/${server}/cpu.cfs_quota_us`), "150000")
      const { limits: found } = await groups.look(server, undefined)
      assert.deepStrictEqual(found, { ...limits, processes: undefined })
    })
  }).pipe(Effect.scoped)
)

it.effect("where there are no groups, servers start without, unless they must have limits", () =>
  Effect.gen(function* () {
    const base = yield* temporary
    const { procDir, system } = kernel(base, true)
    fs.writeFileSync(path.join(procDir, "self/mountinfo"), "")
    fs.writeFileSync(path.join(procDir, "self/cgroup"), "")
    const auto = yield* makeHolding({ dataDir: base, serverLimits: "auto" }, system)
    assert.deepStrictEqual(yield* auto.make(server, limits), [])
    assert.isUndefined((yield* auto.look(server, undefined)).group)
    const required = yield* makeHolding({ dataDir: base, serverLimits: "required" }, system)
    const { message } = yield* Effect.flip(required.make(server, limits))
    assert.match(message, /SVC_SERVER_LIMITS/)
    assert.match(message, /no control groups are mounted/)
  }).pipe(Effect.scoped)
)

/** The end of a process that begins as a server does, in its group if there are any. */
const run = (joins: ReadonlyArray<string>, script: string) =>
  new Promise<{ readonly signal: string | null; readonly output: string }>((resolve, reject) => {
    const { command, args } = launched(
      { command: process.execPath, args: ["-e", script], joins, oomScore: 500 },
      undefined,
      undefined
    )
    const child = spawn(command, [...args], { stdio: ["ignore", "pipe", "ignore"] })
    let output = ""
    child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()))
    child.once("error", reject)
    child.once("close", (_, signal) => resolve({ signal, output }))
  })

it.live.skipIf(process.platform !== "linux")(
  "a process that takes more memory than its server may is ended by the kernel, and counted",
  () =>
    Effect.gen(function* () {
      const dataDir = yield* temporary
      const holding = yield* makeHolding({ dataDir, serverLimits: "auto" })
      yield* Effect.addFinalizer(() => Effect.ignore(holding.leave))
      const placed = yield* holding.placed
      const joins = yield* holding.make(server, { ...limits, memoryBytes: 96 * 2 ** 20 })
      const self = yield* Effect.promise(() =>
        run(joins, "console.log(require('fs').readFileSync('/proc/self/oom_score_adj', 'utf8'))")
      )
      assert.strictEqual(self.output.trim(), "500")
      if (!placed.usable) {
        process.stderr.write(`without control groups: ${placed.why}\n`)
        assert.isNotEmpty(placed.hint)
        assert.deepStrictEqual(joins, [])
        return
      }
      process.stderr.write(`with control groups of version ${placed.place.version}\n`)
      const greedy = yield* Effect.promise(() =>
        run(joins, "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))")
      )
      assert.strictEqual(greedy.signal, "SIGKILL")
      assert.strictEqual((yield* holding.look(server, undefined)).kills, 1)
      assert.deepStrictEqual([...(yield* holding.kills)], [[server, 1]])
      yield* holding.mend(server, undefined, limits)
      const { group } = yield* holding.look(server, undefined)
      assert.strictEqual(group?.limits.memoryBytes, limits.memoryBytes)
      yield* holding.tidy(() => true)
      assert.lengthOf([...(yield* holding.kills)], 1, "a server that is there keeps its group")
      yield* holding.tidy(() => false)
      assert.lengthOf([...(yield* holding.kills)], 0)
      yield* holding.leave
      for (const folder of placed.place.folders.values()) {
        assert.strictEqual(path.basename(folder), placeName(dataDir))
        assert.isFalse(fs.existsSync(folder), "nothing is left behind")
      }
    }).pipe(Effect.scoped)
)
