import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { ExecutionAvailability, ExecutionList, ExecutionLogPage, ExecutionView } from "#src/executions/api.ts"
import {
  base,
  Containers,
  create,
  ended,
  executionPlane,
  makeProject,
  small
} from "#test/executions/world.ts"
import { fits } from "#test/setup/answers.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"

layer(executionPlane({ graceMs: 1_000 }), { excludeTestServices: true })("executions", (it) => {
  it.effect(
    "are created, read, listed newest first, and their logs are pages",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { openImage } = yield* Containers
        yield* makeProject
        const body = {
          image: openImage,
          command: sh("echo one; echo two; echo three"),
          region: "local",
          resources: small,
          env: { A: "1" }
        }
        const made = yield* call("POST", base, { body })
        assert.strictEqual(made.status, 202, made.text)
        yield* fits(ExecutionView, made.body)
        const { id, createdAt, ...rest } = made.body
        assert.deepStrictEqual(rest, {
          status: "starting",
          image: openImage,
          imageDigest: null,
          command: body.command,
          region: "local",
          resources: { cpuKind: "shared", ...small },
          runtime: { nestedContainers: false },
          timeoutSeconds: 3600,
          services: false,
          exitCode: null,
          errorCode: null,
          error: null,
          cleanupStatus: "pending",
          startedAt: null,
          finishedAt: null
        })
        assert.match(createdAt, /Z$/)
        yield* ended(id)
        const second = yield* create({ command: sh("exit 1") })
        yield* ended(second)
        const read = yield* call("GET", `${base}/${id}`)
        yield* fits(ExecutionView, read.body)
        const all = yield* call("GET", base)
        yield* fits(ExecutionList, all.body)
        assert.deepStrictEqual(
          all.body.map((one: { id: string }) => one.id),
          [second, id]
        )
        const failed = yield* call("GET", `${base}?status=failed&limit=5`)
        assert.deepStrictEqual(
          failed.body.map((one: { id: string }) => one.id),
          [second]
        )
        assert.strictEqual((yield* call("GET", `${base}?status=odd`)).status, 422)
        assert.strictEqual((yield* call("GET", `${base}?limit=0`)).status, 422)
        const first = yield* call("GET", `${base}/${id}/logs?limit=2`)
        yield* fits(ExecutionLogPage, first.body)
        const rest_ = yield* call("GET", `${base}/${id}/logs?limit=2&cursor=${first.body.nextCursor}`)
        assert.deepStrictEqual(
          [...first.body.items, ...rest_.body.items].map(({ text }: { text: string }) => text),
          ["one\n", "two\n", "three\n"]
        )
        assert.isNull(rest_.body.nextCursor)
        const search = (query: string) => call("GET", `${base}/${id}/logs?${query}`)
        const found = yield* search("search=TW")
        yield* fits(ExecutionLogPage, found.body)
        assert.deepStrictEqual([found.body.items[0].text, found.body.items.length], ["two\n", 1])
        const some = yield* search("search=E&limit=1")
        const others = yield* search(`search=E&limit=1&cursor=${some.body.nextCursor}`)
        assert.deepStrictEqual([some.body.items[0].text, others.body.items[0].text], ["one\n", "three\n"])
        const streamed = yield* search("search=thr&follow=true")
        assert.include(streamed.text, '"three\\n"')
        assert.notInclude(streamed.text, '"two\\n"')
        assert.include(streamed.text, "event: end")
        assert.deepStrictEqual(
          (yield* Effect.all([search("search="), search(`search=${"x".repeat(201)}`)])).map(
            ({ status }) => status
          ),
          [422, 422]
        )
        assert.strictEqual(
          (yield* call("GET", `${base}/${second}/logs?cursor=${first.body.nextCursor}`)).status,
          422
        )
        assert.strictEqual(
          (yield* call("GET", `${base}/${id}/logs?follow=true`, { headers: { "last-event-id": "x" } }))
            .status,
          422
        )
        assert.strictEqual((yield* call("POST", `${base}/${id}/cancel`)).status, 409)
      }),
    300_000
  )

  it.effect("refuse what cannot be had here, and name every fault", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { openImage, registry, openRegistry } = yield* Containers
      const good = { image: openImage, command: ["/bin/sh"], region: "local" }
      const pull = (at: string) => ({ registry: at, username: "u", password: "p" })
      const faults: ReadonlyArray<readonly [object, string]> = [
        [{ image: "UPPER/case" }, "/image"],
        [{ image: "a:b:c" }, "/image"],
        [{ image: "name@sha256:12" }, "/image"],
        [{ command: [] }, "/command/0"],
        [{ command: [""] }, "/command/0"],
        [{ region: "moon" }, "/region"],
        [{ resources: { cpus: 1_000 } }, "/resources/cpus"],
        [{ resources: { memoryMb: 1 } }, "/resources/memoryMb"],
        [{ resources: { cpuKind: "magic" } }, "/resources/cpuKind"],
        [{ timeoutSeconds: 0 }, "/timeoutSeconds"],
        [{ timeoutSeconds: 10_000_000 }, "/timeoutSeconds"],
        [{ runtime: { nestedContainers: true } }, "/runtime/nestedContainers"],
        [{ env: { "1A": "x" } }, "/env/1A"],
        [{ env: { A: 1 } }, "/env/A"],
        [{ env: Object.fromEntries(Array.from({ length: 201 }, (_, i) => [`K${i}`, ""])) }, "/env"],
        [{ imagePullCredentials: pull("evil.example") }, "/imagePullCredentials/registry"],
        [{ imagePullCredentials: pull(openRegistry) }, "/imagePullCredentials/registry"],
        [{ imagePullCredentials: pull(registry) }, "/imagePullCredentials/registry"],
        [
          { image: "ghcr.io/x/y", imagePullCredentials: pull("https://index.docker.io/v1/") },
          "/imagePullCredentials/registry"
        ],
        [{ odd: 1 }, "/odd"]
      ]
      for (const [change, pointer] of faults) {
        const refused = yield* call("POST", base, { body: { ...good, ...change } })
        assert.strictEqual(refused.status, 422, JSON.stringify(change))
        assert.include(
          refused.body.errors.map((one: { pointer: string }) => one.pointer),
          pointer,
          JSON.stringify(change)
        )
      }
      const many = yield* call("POST", base, {
        body: { ...good, image: "?", region: "moon", timeoutSeconds: 0 }
      })
      assert.strictEqual(many.body.errors.length, 3)
    })
  )

  it.effect(
    "cost what the budget allows, and need active billing; availability tells their bounds",
    () =>
      Effect.gen(function* () {
        const { call, tenant } = yield* Plane
        const { openImage } = yield* Containers
        const body = { image: openImage, command: ["/bin/sh"], region: "local" }
        const paying = yield* tenant()
        const at = `/v1/orgs/${paying.slug}/projects`
        const asked = { token: paying.adminKey }
        yield* call("POST", at, { ...asked, body: { name: "Place", slug: "place" } })
        const { sql } = yield* Plane
        yield* call("PUT", `${at}/place/budget`, {
          token: paying.owner,
          body: { monthlyCapUsd: 0, hardStop: true }
        })
        const broke = yield* call("POST", `${at}/place/executions`, { ...asked, body })
        assert.deepStrictEqual([broke.status, broke.body.code], [402, "budget_exhausted"], broke.text)
        yield* sql(`update organization set billing_status = 'unpaid' where id = '${paying.id}'`)
        const stopped = yield* call("POST", `${at}/place/executions`, { ...asked, body })
        assert.deepStrictEqual([stopped.status, stopped.body.code], [402, "billing_inactive"])
        const availability = yield* call("GET", `${at}/place/executions/availability`, asked)
        yield* fits(ExecutionAvailability, availability.body)
        assert.isTrue(availability.body.ready)
        assert.strictEqual(availability.body.limits.maxActiveExecutionsPerProject, 20)
      }),
    300_000
  )
})
