/** Commands made from the description of a collection, without a control plane. */

import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { CliFailure } from "#src/cli/failure.ts"
import { Invocation } from "#src/cli/invocation.ts"
import { inEnvironment, resourceCommands } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { recorded } from "./svc.ts"

const older = { id: "id-1", name: "jobs", createdAt: "2026-01-01T00:00:00Z", size: 1 }
const newer = { id: "id-2", name: "jobs", createdAt: "2026-02-01T00:00:00Z", size: 1 }

/** A collection of boxes, and the requests that were made about it. */
const boxes = (there: ReadonlyArray<typeof older>) => {
  const requests: Array<unknown> = []
  const { ls, get, update } = resourceCommands({
    scope: inEnvironment,
    noun: "box",
    plural: "boxes",
    argument: Argument.String("name"),
    list: (_, { params, query }) =>
      Effect.sync(() => {
        requests.push({ ...params, ...query })
        return there
      }),
    nameOf: ({ name }) => name,
    one: ({ params }, { id }) => ({ params: { ...params, boxId: id } })
  })
  const command = Command.make("boxes").pipe(
    Command.withSubcommands([
      ls({ columns: { NAME: ({ name }) => name, SIZE: ({ size }) => String(size) } }),
      get(({ id, name }) => [
        ["Id", id],
        ["Name", name]
      ]),
      update({
        settings: { size: Flag.Int("size").pipe(Flag.optional) },
        waits: false,
        payload: (settings) => Effect.succeed(settings),
        send: (_, request) =>
          Effect.sync(() => {
            requests.push(request)
            return { ...older, ...request.payload }
          }),
        changed: (answer) => answer
      })
    ])
  )
  const run = (...args: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const env = { SVC_TOKEN: `svc_${"ab".repeat(20)}`, SVC_ORG: "acme", XDG_CONFIG_HOME: "/nonexistent" }
      const { invocation, stdout, stderr } = recorded({ cwd: "/", env })
      const ended = yield* Command.runWith(command, { version: "0" })(args).pipe(
        Effect.provide(NodeServices.layer),
        Effect.provideService(Invocation, invocation),
        Effect.result
      )
      const failed = ended._tag === "Failure" ? (ended.failure as CliFailure) : undefined
      return {
        code: failed?.exitCode ?? 0,
        message: failed?.message ?? "",
        stdout: stdout(),
        stderr: stderr()
      }
    })
  return { run, requests }
}

describe("commands of a collection", () => {
  it.live("list what is at the place, and say so where there is nothing", () =>
    Effect.gen(function* () {
      const { run, requests } = boxes([older])
      const table = yield* run("ls", "shop")
      assert.deepStrictEqual([table.code, table.stdout], [0, "NAME  SIZE\njobs  1\n"])
      assert.deepStrictEqual(requests, [{ orgId: "acme", projectId: "shop", environment: "production" }])
      assert.deepStrictEqual(JSON.parse((yield* run("list", "shop", "--json")).stdout), [older])
      const nothing = yield* boxes([]).run("ls", "shop", "-e", "staging")
      assert.deepStrictEqual([nothing.stdout, nothing.stderr], ["", "There are no boxes in shop/staging\n"])
    })
  )

  it.live("find by id, and by name the one that was made last", () =>
    Effect.gen(function* () {
      const { run } = boxes([older, newer])
      assert.strictEqual((yield* run("get", "shop", "jobs")).stdout, "Id    id-2\nName  jobs\n")
      assert.strictEqual((yield* run("get", "shop", "id-1")).stdout, "Id    id-1\nName  jobs\n")
      const absent = yield* run("get", "shop", "other")
      assert.deepStrictEqual([absent.code, absent.stdout], [5, ""])
      assert.strictEqual(absent.message, 'There is no box "other" in shop/production')
    })
  )

  it.live("change what is named, and ask nothing where nothing is", () =>
    Effect.gen(function* () {
      const { run, requests } = boxes([older])
      assert.strictEqual((yield* run("update", "shop", "jobs")).code, 2)
      assert.deepStrictEqual(requests, [])
      const changed = yield* run("update", "shop", "jobs", "--size", "3", "--json")
      assert.deepStrictEqual(JSON.parse(changed.stdout), { ...older, size: 3 })
      assert.deepStrictEqual(requests[1], {
        params: { orgId: "acme", projectId: "shop", boxId: "id-1" },
        payload: { size: 3 }
      })
    })
  )
})

it("flags that nobody gave set no field, and a group of them no object", () => {
  const none = { a: Option.none<string>(), many: [], group: { b: Option.none<number>() }, off: false }
  assert.deepStrictEqual<unknown>(given(none), { off: false })
  const some = { a: Option.some(""), many: ["x"], group: { b: Option.some(0) }, off: true }
  assert.deepStrictEqual<unknown>(given(some), { a: "", many: ["x"], group: { b: 0 }, off: true })
})
