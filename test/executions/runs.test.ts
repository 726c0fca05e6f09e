/** Real containers: how they end, how they are ended, and what is kept of what they print. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { registryPassword, registryUser, sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { saying } from "#test/setup/saying.ts"
import { eventually } from "#test/setup/wait.ts"
import {
  anHourAgo,
  base,
  Containers,
  create,
  ended,
  entries,
  executionPlane,
  hasPrinted,
  isRunning,
  makeProject,
  printed,
  until
} from "./world.ts"

const patience = 300_000

/** As printf takes it. */
const everyByte = Array.from({ length: 256 }, (_, i) => `\\${i.toString(8).padStart(3, "0")}`).join("")

/** Nobody is made to end who would do so by himself if only he had the time. */
const graceMs = 60_000

layer(executionPlane({ graceMs }), { excludeTestServices: true, timeout: "3 minutes" })(
  "executions",
  (it) => {
    it.effect(
      "run a command with its variables, bound, without a way to this machine; what it prints is kept, nothing else is",
      () =>
        Effect.gen(function* () {
          yield* makeProject
          // What else is held back: test/infra/container-network.test.ts.
          const port = yield* saying("reached")
          const { podman } = yield* Containers
          const id = yield* create({
            command: sh(`echo "$GREETING"; echo trouble >&2
              echo "environment: $SVC_ENVIRONMENT$SVC_API_URL$APP_SERVICE_TOKEN"
              busybox grep -E "CapEff|CapBnd|NoNewPrivs" /proc/self/status
              busybox ls /var/run /run 2>/dev/null | busybox grep -i -E "docker|podman"
              GW=$(busybox ip route | busybox awk '/default/ {print $3}')
              busybox timeout 3 busybox nc -w 2 "$GW" ${port} </dev/null && echo "reached the gateway"
              busybox timeout 3 busybox nc -w 2 127.0.0.1 ${port} </dev/null && echo "reached loopback"
              busybox ip -6 addr | busybox grep inet6
              busybox printf "no end"`),
            env: { GREETING: "hällo wörld", PATH: "/bin" }
          })
          const done = yield* ended(id)
          assert.deepStrictEqual(
            [done.status, done.exitCode, done.errorCode, done.error],
            ["succeeded", 0, null, null]
          )
          assert.match(done.imageDigest, /^sha256:[0-9a-f]{64}$/)
          assert.isAtLeast(Date.parse(done.finishedAt), Date.parse(done.startedAt))
          const text = yield* printed(id)
          assert.isTrue(text.endsWith("\nno end"), text)
          assert.match(text, /^hällo wörld\nenvironment: \n/)
          assert.include(yield* printed(id, "stderr"), "trouble\n")
          assert.match(text, /CapEff:\s+0000000000000000/)
          assert.match(text, /CapBnd:\s+0000000000000000/)
          assert.match(text, /NoNewPrivs:\s+1/)
          assert.notInclude(text, "reached")
          assert.notInclude(text, "inet6")
          assert.notMatch(text, /docker|podman/)
          assert.strictEqual(podman("ps", "-a", "-q", "--filter", `label=svc.execution=${id}`), "")
          assert.notInclude(podman("network", "ls", "--format", "{{.Name}}"), id)
        }),
      patience
    )

    it.effect(
      "fail with what they exit with, and tell running out of memory apart",
      () =>
        Effect.gen(function* () {
          const failing = yield* create({ command: sh("exit 7") })
          const hungry = yield* create({
            command: sh("x=$(busybox head -c 200000000 /dev/zero | busybox tr '\\0' x); echo held"),
            env: { PATH: "/bin" }
          })
          const absent = yield* create({ command: ["/bin/nothing"] })
          const failed = yield* ended(failing)
          assert.deepStrictEqual([failed.status, failed.exitCode, failed.errorCode], ["failed", 7, null])
          const starved = yield* ended(hungry)
          assert.deepStrictEqual([starved.status, starved.errorCode], ["failed", "out_of_memory"])
          const never = yield* ended(absent)
          assert.deepStrictEqual(
            [never.status, never.errorCode, never.exitCode, never.startedAt],
            ["failed", "start_failed", null, null]
          )
        }),
      patience
    )

    it.effect(
      "are told to end when their time is over, and made to when they do not",
      () =>
        Effect.gen(function* () {
          const { sql } = yield* Plane
          const polite = yield* create({
            command: sh("trap 'echo bye; exit 0' TERM; echo ready; while :; do busybox sleep 0.1; done"),
            env: { PATH: "/bin" },
            timeoutSeconds: 900
          })
          const deaf = yield* create({
            command: sh("while :; do busybox sleep 0.1; done"),
            env: { PATH: "/bin" },
            timeoutSeconds: 2
          })
          yield* hasPrinted(polite, "ready\n")
          yield* anHourAgo(polite, "started_at")
          const first = yield* ended(polite)
          assert.deepStrictEqual([first.status, first.exitCode], ["timed_out", 0])
          assert.include(yield* printed(polite), "bye")
          // That it was told to end is known when its time was over, and not before.
          const isTold = sql(
            `select stop_at >= started_at + interval '2 seconds' as due from execution
             where uid = '${deaf}' and stop_at is not null`
          )
          const [told] = yield* eventually("it is told to end", isTold, (rows) => rows.length > 0)
          assert.deepStrictEqual(told, { due: true })
          yield* anHourAgo(deaf, "stop_at", "stop_sent")
          const second = yield* ended(deaf)
          assert.deepStrictEqual([second.status, second.exitCode], ["timed_out", 137])
        }),
      patience
    )

    it.effect(
      "are cancelled at once before they run, and told to end while they do; nothing leaves an end",
      () =>
        Effect.gen(function* () {
          const { call } = yield* Plane
          const early = yield* create({ command: sh("busybox sleep 50"), env: { PATH: "/bin" } })
          const answer = yield* call("POST", `${base}/${early}/cancel`)
          assert.strictEqual(answer.status, 202)
          const running = yield* create({
            command: sh("trap 'exit 9' TERM; echo ready; while :; do busybox sleep 0.1; done"),
            env: { PATH: "/bin" }
          })
          yield* hasPrinted(running, "ready\n")
          yield* isRunning(running)
          assert.strictEqual((yield* call("POST", `${base}/${running}/cancel`)).status, 202)
          assert.strictEqual((yield* ended(early)).status, "cancelled")
          const done = yield* ended(running)
          assert.deepStrictEqual([done.status, done.exitCode], ["cancelled", 9])
          const again = yield* call("POST", `${base}/${running}/cancel`)
          assert.deepStrictEqual([again.status, again.body.code], [409, "execution_ended"])
          assert.strictEqual((yield* ended(running)).status, "cancelled")
        }),
      patience
    )

    it.effect(
      "fetch private images with the right password only, and say what cannot be fetched",
      () =>
        Effect.gen(function* () {
          const { image, registry, openRegistry } = yield* Containers
          const credentials = (password: string) => ({
            imagePullCredentials: { registry: `https://${registry}/v2/`, username: registryUser, password }
          })
          const command = sh("echo in")
          const right = yield* create({ image, command, ...credentials(registryPassword) })
          assert.strictEqual((yield* ended(right)).status, "succeeded")
          // It is on the machine now, and still nobody gets it without the password.
          const wrong = yield* create({ image, command, ...credentials("wrong") })
          const none = yield* create({ image, command })
          const missing = yield* create({ image: `${openRegistry}/test/nope:1`, command })
          const forbidden = yield* create({ image: "169.254.169.254/x/y:1", command })
          for (const [id, code] of [
            [wrong, "image_pull_failed"],
            [none, "image_pull_failed"],
            [missing, "image_not_found"],
            [forbidden, "image_pull_failed"]
          ] as const) {
            const done = yield* ended(id)
            assert.deepStrictEqual([done.status, done.errorCode], ["failed", code], done.error)
          }
          assert.include((yield* ended(forbidden)).error, "SVC_OUTBOUND_ALLOW")
        }),
      patience
    )

    it.effect(
      "keep a line of a megabyte and bytes that are no text, in order",
      () =>
        Effect.gen(function* () {
          const { sql } = yield* Plane
          const long = yield* create({
            command: sh("busybox head -c 1000000 /dev/zero | busybox tr '\\0' x; echo; echo after"),
            env: { PATH: "/bin" }
          })
          const binary = yield* create({
            command: sh(`busybox printf '${everyByte}'`),
            env: { PATH: "/bin" }
          })
          yield* ended(long)
          const text = yield* printed(long)
          assert.strictEqual(text.length, 1_000_007)
          assert.strictEqual(text, `${"x".repeat(1_000_000)}\nafter\n`)
          yield* ended(binary)
          const [row] = yield* sql(
            `select encode(string_agg(content, '' order by position), 'hex') as hex from execution_log where execution_uid = '${binary}'`
          )
          assert.strictEqual(
            row?.["hex"],
            Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString("hex")
          )
          const ids = (yield* entries(long)).map(({ id }) => Number(id.split("-")[0]))
          assert.deepStrictEqual(
            ids,
            [...ids].sort((a, b) => a - b)
          )
        }),
      patience
    )

    it.effect(
      "keep every one of many lines, although it takes longer to keep them than to print them",
      () =>
        Effect.gen(function* () {
          const id = yield* create({
            command: sh("i=0; while [ $i -lt 8000 ]; do echo line $i; i=$((i+1)); done")
          })
          assert.strictEqual((yield* ended(id)).status, "succeeded")
          const lines = (yield* printed(id)).split("\n")
          assert.strictEqual(lines.pop(), "")
          const other = lines.findIndex((line, i) => line !== `line ${i}`)
          assert.deepStrictEqual([lines.length, other], [8_000, -1])
        }),
      patience
    )

    it.effect(
      "are followed live, and a stream goes on after the entry it is told",
      () =>
        Effect.gen(function* () {
          const { url, apiKey } = yield* Plane
          const { podman } = yield* Containers
          // Halfway it waits until it is told to go on.
          const id = yield* create({
            command: sh(`trap 'on=1' USR1; i=0
              while [ $i -lt 12 ]; do
                echo line $i; i=$((i+1))
                [ $i -ne 6 ] || while [ -z "$on" ]; do busybox sleep 0.1; done
              done`),
            env: { PATH: "/bin" }
          })
          const follow = (last: string | undefined, stopAfter: number) =>
            Effect.promise(async () => {
              const response = await fetch(`${url}${base}/${id}/logs?follow=true`, {
                headers: {
                  authorization: `Bearer ${apiKey}`,
                  ...(last === undefined ? {} : { "last-event-id": last })
                },
                signal: AbortSignal.timeout(180_000)
              })
              assert.strictEqual(
                response.headers.get("content-type"),
                "text/event-stream",
                response.ok ? "" : await response.text()
              )
              const lines: Array<string> = []
              let lastId = ""
              let end: string | undefined
              let buffer = ""
              const decoder = new TextDecoder()
              for await (const chunk of response.body ?? []) {
                buffer += decoder.decode(chunk, { stream: true })
                for (let at = buffer.indexOf("\n\n"); at !== -1; at = buffer.indexOf("\n\n")) {
                  const event = buffer.slice(0, at)
                  buffer = buffer.slice(at + 2)
                  const data = /^data: (.*)$/m.exec(event)?.[1]
                  if (/^event: end$/m.test(event)) end = data
                  if (!/^event: entry$/m.test(event)) continue
                  lastId = /^id: (.*)$/m.exec(event)?.[1] ?? ""
                  lines.push(JSON.parse(data ?? "").text)
                }
                if (lines.length >= stopAfter) break
              }
              return { lines, lastId, end }
            })
          const first = yield* follow(undefined, 3)
          podman("kill", "--signal", "USR1", `svc-${id}`)
          const second = yield* follow(first.lastId, Number.POSITIVE_INFINITY)
          assert.deepStrictEqual(
            [...first.lines, ...second.lines],
            Array.from({ length: 12 }, (_, i) => `line ${i}\n`)
          )
          assert.isAtMost(first.lines.length, 6)
          assert.strictEqual(JSON.parse(second.end ?? "{}").status, "succeeded")
        }),
      patience
    )

    it.effect(
      "are settled in the project's budget, and one that could cost too much is refused",
      () =>
        Effect.gen(function* () {
          const { call, sql } = yield* Plane
          const [counted] = yield* sql(
            `select count(*)::int as entries, count(*) filter (where settled_at is null)::int as open from budget_entry`
          )
          assert.isAbove(Number(counted?.["entries"]), 10)
          assert.strictEqual(counted?.["open"], 0)
          yield* until(
            yield* create({ command: sh("exit 0") }),
            ({ status }) => status === "succeeded",
            "ended"
          )
          const budget = yield* call("PUT", "/v1/orgs/main/projects/jobs/budget", {
            body: { monthlyCapUsd: 0.000001, hardStop: true }
          })
          assert.strictEqual(budget.status, 200, budget.text)
          const { openImage } = yield* Containers
          const refused = yield* call("POST", base, {
            body: { image: openImage, region: "local", command: ["/bin/sh"] }
          })
          assert.deepStrictEqual([refused.status, refused.body.code], [402, "budget_exhausted"])
        }),
      patience
    )
  }
)
