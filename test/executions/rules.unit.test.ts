/** The rules by which executions go on, names of images, and which rules of a firewall are left over. */
import { assert, describe, it } from "@effect/vitest"
import { decide, type Seen, type Situation } from "#reconcilers/execution/state-machine.ts"
import { isListed, parseImage, registryOf } from "#src/executions/image.ts"
import type { ExecutionOptions } from "#src/executions/options.ts"
import type { Run } from "#src/executions/Runs.ts"
import { removalsOfGone } from "#src/infra/containers/network.ts"

const begun = Date.parse("2026-01-01T00:00:00Z")
const options: ExecutionOptions = {
  startupMs: 600_000,
  engineMs: 120_000,
  graceMs: 10_000,
  hostLostMs: 60_000,
  captureMs: 60_000,
  cleanupTries: 8,
  followerMs: 15_000,
  logBytes: 1_000,
  queueMs: 86_400_000,
  pulls: 1,
  pullsPerOrg: 1,
  pullStallMs: 1_000,
  pullTries: 1
}
const anew: Run = {
  status: "starting",
  errorCode: null,
  error: null,
  exitCode: null,
  begunAt: new Date(begun),
  roomMb: 64,
  turnAt: null,
  imageId: null,
  imageDigest: null,
  containerMade: false,
  startedAt: null,
  stopReason: null,
  stopAt: null,
  stopSent: false,
  lostSince: null,
  finishedAt: null,
  cleanupStatus: "pending",
  cleanupTries: 0,
  logComplete: false,
  logOwnerAgeMs: null
}
const situation = (values: Partial<Situation>): Situation => ({
  now: begun + 1_000,
  spec: {
    image: "alpine",
    command: ["x"],
    region: "local",
    resources: { cpuKind: "shared", cpus: 1, memoryMb: 64 },
    runtime: { nestedContainers: false },
    timeoutSeconds: 60,
    services: false,
    cancelRequested: false
  },
  run: anew,
  seen: { _tag: "Gone" },
  pull: undefined,
  followed: true,
  options,
  ...values
})
const there = (state: "created" | "running" | "exited", more: object = {}): Seen => ({
  _tag: "There",
  container: {
    id: "c",
    state,
    startedAt: new Date(begun + 500),
    finishedAt: state === "exited" ? new Date(begun + 900) : undefined,
    exitCode: 0,
    outOfMemory: false,
    paused: false,
    address: undefined,
    ...more
  }
})
const silent: Seen = { _tag: "Silent", startable: false, missing: false, message: "silence" }
const active: Run = {
  ...anew,
  status: "running",
  imageId: "i",
  containerMade: true,
  startedAt: new Date(begun)
}

const flags = [false, true]
const seens: ReadonlyArray<Seen> = [
  { _tag: "Gone" },
  ...flags.flatMap((startable) => flags.map((missing): Seen => ({ ...silent, startable, missing }))),
  ...[0, 1, 137].flatMap((exitCode) =>
    flags.flatMap((outOfMemory) =>
      (["created", "running", "exited"] as const).map((state) => there(state, { exitCode, outOfMemory }))
    )
  )
]
const moments = [0, 1, 500, 9_999, 60_000, 60_001, 600_000, 600_001, 30 * 86_400_000].map(
  (after) => begun + after
)
/** Each way in which one that has not ended can stand. */
const runs = (["starting", "running"] as const).flatMap((status) =>
  flags.flatMap((made) =>
    ([null, "cancelled", "timed_out"] as const).flatMap((stop) =>
      flags.flatMap((stopSent) =>
        flags.map((lost): Run => {
          const running = status === "running"
          return {
            ...anew,
            status,
            imageId: running || made ? "i" : null,
            containerMade: running || made,
            startedAt: running ? new Date(begun) : null,
            stopReason: stop,
            stopAt: stop === null ? null : new Date(begun),
            stopSent,
            lostSince: lost ? new Date(begun) : null
          }
        })
      )
    )
  )
)

describe("what is due for an execution", () => {
  const changes = new Set([
    "end",
    "running",
    "stop",
    "tell",
    "kill",
    "make",
    "start",
    "pull",
    "pulled",
    "begin"
  ])

  it("nothing leaves an end", () => {
    for (const run of runs)
      for (const seen of seens)
        for (const now of moments)
          for (const followed of flags)
            for (const logComplete of flags)
              for (const cleanupStatus of ["pending", "confirmed", "attention_required"] as const) {
                const finishedAt = new Date(begun + 10)
                const over: Run = { ...run, status: "failed", finishedAt, logComplete, cleanupStatus }
                const step = decide(situation({ run: over, seen, now, followed }))
                if (cleanupStatus === "confirmed") assert.strictEqual(step.do, "nothing")
                else if (changes.has(step.do)) assert.fail(`${step.do} for ${JSON.stringify(over)}`)
              }
  })

  it("no state lasts for ever: once all deadlines are over nothing waits", () => {
    const now = begun + 30 * 86_400_000
    for (const run of runs)
      for (const seen of seens) {
        const step = decide(situation({ run, seen, now }))
        assert.notInclude(["wait", "nothing"], step.do, JSON.stringify({ run, seen }))
      }
  })

  it("whoever is cancelled before it runs ends without a container, in each phase", () => {
    const spec = { ...situation({}).spec, cancelRequested: true }
    const pulling = situation({ spec, pull: { _tag: "Pulling", since: begun } })
    const made = situation({
      spec,
      run: { ...anew, imageId: "i", containerMade: true },
      seen: there("created")
    })
    for (const phase of [situation({ spec }), pulling, made, situation({ spec, seen: silent })]) {
      const step = decide(phase)
      assert.isTrue(step.do === "end" && step.ending.status === "cancelled", JSON.stringify(step))
    }
  })

  it("whoever runs is told, then made to; cancelling again while that goes on changes nothing", () => {
    const spec = { ...situation({}).spec, cancelRequested: true }
    const seen = there("running")
    const at = (run: Run, after = 1_000) => decide(situation({ spec, run, seen, now: begun + after }))
    const stopping: Run = { ...active, stopReason: "timed_out", stopAt: new Date(begun + 1_000) }
    assert.deepInclude(at(active), { do: "stop", reason: "cancelled" })
    assert.strictEqual(at(stopping).do, "tell")
    assert.strictEqual(at({ ...stopping, stopSent: true }, 10_999).do, "wait")
    assert.strictEqual(at({ ...stopping, stopSent: true }, 11_000).do, "kill")
  })

  it("whoever is to end does so although nobody keeps what it prints", () => {
    const seen = there("running")
    const at = (run: Run, after: number, cancelRequested = false) =>
      decide(
        situation({
          spec: { ...situation({}).spec, cancelRequested },
          run,
          seen,
          now: begun + after,
          followed: false
        })
      )
    const stopping: Run = { ...active, stopReason: "timed_out", stopAt: new Date(begun + 60_000) }
    assert.strictEqual(at(active, 1_000).do, "follow")
    assert.deepInclude(at(active, 1_000, true), { do: "stop", reason: "cancelled" })
    assert.deepInclude(at(active, 60_000), { do: "stop", reason: "timed_out" })
    assert.strictEqual(at(stopping, 60_000).do, "tell")
    assert.strictEqual(at({ ...stopping, stopSent: true }, 61_000).do, "follow")
    assert.strictEqual(at({ ...stopping, stopSent: true }, 70_000).do, "kill")
  })

  it("an engine that is silent is waited for, as long as is said and no longer; one that comes back goes on", () => {
    const at = (seen: Seen, lostSince: number | null, after: number) =>
      decide(
        situation({
          run: { ...anew, lostSince: lostSince === null ? null : new Date(begun + lostSince) },
          seen,
          now: begun + after
        })
      )
    const gone: Seen = { ...silent, missing: true, message: "no engine here" }
    assert.deepEqual(at(gone, null, 1_000), { do: "lost", since: new Date(begun + 1_000) })
    assert.deepInclude(at(gone, 1_000, 121_000), { do: "wait", reason: "HostDependencyMissing" })
    assert.deepInclude(at(silent, 1_000, 121_000), { do: "wait", reason: "EngineUnreachable" })
    assert.strictEqual(at({ ...silent, startable: true }, 1_000, 121_000).do, "startEngine")
    const over = at(gone, 1_000, 121_001)
    assert.isTrue(over.do === "end" && over.ending.errorCode === "start_failed")
    assert.include(over.do === "end" ? over.ending.error : "", "no engine here")
    assert.deepEqual(at({ _tag: "Gone" }, 1_000, 121_001), { do: "lost", since: null })
  })

  it("what an engine still has to tell of a log is waited for when it is silent, before the container goes", () => {
    const ended: Run = { ...active, status: "succeeded", finishedAt: new Date(begun) }
    const at = (run: Run, seen: Seen, after: number) =>
      decide(situation({ run, seen, now: begun + after })).do
    assert.strictEqual(at(ended, silent, 60_000), "wait")
    assert.strictEqual(at(ended, { ...silent, startable: true }, 60_000), "startEngine")
    assert.strictEqual(at(ended, silent, 60_001), "cleanUp")
    assert.strictEqual(at({ ...ended, logComplete: true }, silent, 1), "cleanUp")
  })

  it("an engine that is silent for too long takes the execution along", () => {
    const lost: Run = { ...active, lostSince: new Date(begun) }
    assert.strictEqual(decide(situation({ run: active, seen: silent })).do, "lost")
    assert.strictEqual(decide(situation({ run: lost, seen: silent, now: begun + 60_000 })).do, "wait")
    const step = decide(situation({ run: lost, seen: silent, now: begun + 60_001 }))
    assert.isTrue(step.do === "end" && step.ending.errorCode === "host_lost")
  })
})

describe("names of images", () => {
  it("are completed, so that an engine never guesses", () => {
    const digest = `sha256:${"a".repeat(64)}`
    for (const [text, canonical] of [
      ["alpine", "docker.io/library/alpine:latest"],
      ["grafana/loki:2", "docker.io/grafana/loki:2"],
      ["index.docker.io/alpine", "docker.io/library/alpine:latest"],
      ["GHCR.io/a/b", "ghcr.io/a/b:latest"],
      ["localhost:5000/x", "localhost:5000/x:latest"],
      [`ghcr.io/a/b:1@${digest}`, `ghcr.io/a/b@${digest}`]
    ] as const)
      assert.strictEqual(parseImage(text)?.canonical, canonical, text)
    for (const text of [
      "",
      "A",
      "a:",
      "a@sha256:1",
      "a@b@c",
      "-a",
      "a//b",
      "../a",
      "a b",
      "http://a/b",
      "a:b:c"
    ])
      assert.isUndefined(parseImage(text), text)
  })

  it("whatever is one, is itself in its complete form, and nothing of it is lost", () => {
    for (const host of [undefined, "ghcr.io", "a.example:5000", "localhost"])
      for (const path of ["a", "a/b", "a-b/c.d/e__f", "library/x"])
        for (const tag of [undefined, "1", "V1.2-rc_3", "latest"]) {
          const text = `${host === undefined ? "" : `${host}/`}${path}${tag === undefined ? "" : `:${tag}`}`
          const image = parseImage(text)
          assert.isDefined(image, text)
          assert.strictEqual(parseImage(image?.canonical ?? "")?.canonical, image?.canonical)
          assert.strictEqual(image?.registry, host ?? "docker.io")
          assert.isTrue(image?.canonical.endsWith(`${path}:${tag ?? "latest"}`))
        }
  })

  it("registries are the same under each of their names, and a star stands for a part of one label", () => {
    assert.strictEqual(registryOf("https://index.docker.io/v1/"), "docker.io")
    assert.isTrue(isListed("eu-docker.pkg.dev", ["*.pkg.dev"]))
    assert.isFalse(isListed("pkg.dev.evil.com", ["*.pkg.dev"]))
    assert.isFalse(isListed("a.b.pkg.dev", ["*.pkg.dev"]))
    assert.isFalse(isListed("ghcrxio", ["ghcr.io"]))
  })
})

describe("rules of a firewall", () => {
  const note = '-m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge)"'
  it("are left over when they are about a bridge of ours that is not there", () => {
    const listing = [
      "-N CNI-ISOLATION-STAGE-1",
      `-A CNI-ISOLATION-STAGE-1 -i svcx0123456789 ! -o svcx0123456789 ${note} -j CNI-ISOLATION-STAGE-2`,
      `-A CNI-ISOLATION-STAGE-1 -i svcxaaaaaaaaaa ! -o svcxaaaaaaaaaa ${note} -j CNI-ISOLATION-STAGE-2`,
      `-A CNI-ISOLATION-STAGE-1 -i cni-podman1 ! -o cni-podman1 ${note} -j CNI-ISOLATION-STAGE-2`,
      `-A CNI-ISOLATION-STAGE-1 ${note} -j RETURN`,
      "-A SVC-SERVICES -i svca0123456789 -p tcp -m tcp --dport 20001 -j DNAT --to-destination 127.0.0.1:20001",
      "-A SVC-SERVICES -j ACCEPT"
    ].join("\n")
    const found = removalsOfGone(listing, (bridge) => bridge === "svcxaaaaaaaaaa")
    assert.deepStrictEqual(found, [
      [
        "filter",
        `-D CNI-ISOLATION-STAGE-1 -i svcx0123456789 ! -o svcx0123456789 ${note} -j CNI-ISOLATION-STAGE-2`
      ],
      [
        "nat",
        "-D SVC-SERVICES -i svca0123456789 -p tcp -m tcp --dport 20001 -j DNAT --to-destination 127.0.0.1:20001"
      ]
    ])
  })
})
