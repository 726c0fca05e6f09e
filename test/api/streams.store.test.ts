/** Streams that stay open: how many there may be at once, and that a closed one makes room. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { StreamLimits } from "#src/api/streams.ts"
import { base, makeProject, small } from "#test/executions/world.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const plane = testPlane({ containerSocket: "none" }).pipe(
  Layer.provide(Layer.succeed(StreamLimits, { credential: 2, organization: 3 }))
)

const watch = "/v1/orgs/main/resources/watch"

layer(plane, { excludeTestServices: true })("streams", (it) => {
  it.effect(
    "are bound for each credential and for each organization, with one answer for who comes too late",
    () =>
      Effect.gen(function* () {
        const { call, url, apiKey, session } = yield* Plane
        yield* makeProject
        const made = yield* call("POST", base, {
          body: { image: "alpine", command: ["/bin/sh"], region: "local", resources: small }
        })
        const logs = `${base}/${made.body.id}/logs?follow=true`
        /** Open once its first words are here. */
        const open = (path: string, token: string) =>
          Effect.promise(async () => {
            const controller = new AbortController()
            const response = await fetch(`${url}${path}`, {
              headers: { authorization: `Bearer ${token}` },
              signal: controller.signal
            })
            const reader = response.body?.getReader()
            const text = new TextDecoder().decode((await reader?.read())?.value)
            return { status: response.status, text, retry: response.headers.get("retry-after"), controller }
          })
        for (const path of [logs, watch]) {
          const first = yield* open(path, apiKey)
          yield* open(path, apiKey)
          assert.include(first.text, "retry: 1000")
          const third = yield* open(path, apiKey)
          assert.deepStrictEqual(
            [third.status, JSON.parse(third.text).code, third.retry],
            [429, "too_many_streams", "10"]
          )
          assert.strictEqual((yield* open(path, session)).status, 200)
          assert.strictEqual((yield* open(path, session)).status, 429)
          first.controller.abort()
          yield* eventually("another may be opened", open(path, apiKey), ({ status }) => status === 200)
        }
      })
  )
})
