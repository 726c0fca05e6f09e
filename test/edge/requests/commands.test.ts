import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const projects = "/v1/orgs/main/projects"
const base = `${projects}/shop/environments`

/** Stores a request as an edge would. */
const came = Effect.fnUntraced(function* (
  number: number,
  { path = "/", status = 200 as number | null, termination = "--", minutesAgo = 0 } = {}
) {
  const { sql } = yield* Plane
  yield* sql(`insert into edge_request (org_id, environment_uid, number, at, method, host, path, status, duration_ms,
    bytes_in, bytes_out, termination)
    select s.org_id, s.environment_uid, ${number}, now() - interval '${minutesAgo} minutes', 'GET', 'shop.example',
      '${path}', ${status}, 12, 345, 6789, '${termination}' from edge_site s
      join resource r on (r.org_id, r.uid) = (s.org_id, s.environment_uid) where r.name = 'production'`)
})

layer(signedIn(), { excludeTestServices: true })("requests of an environment", (it) => {
  it.effect("are read in pages and by class, path and time; only members of its organization do", () =>
    Effect.gen(function* () {
      const { call, sql, tenant } = yield* Plane
      const made = yield* call("POST", projects, { body: { name: "Shop", slug: "shop" } })
      assert.strictEqual(made.status, 201, made.text)
      yield* sql(`insert into edge_site (org_id, environment_uid, label)
        select org_id, uid, uid from resource where kind = 'Environment' and name = 'production' on conflict do nothing`)
      yield* came(1, { path: "/old", minutesAgo: 30 })
      yield* came(2, { path: "/api/gone", status: 404 })
      yield* came(3, { path: "/api/down", status: 503, termination: "SC" })
      yield* came(4, { path: "/left", status: null, termination: "CH" })
      const list = (query: string, token?: string) =>
        call("GET", `${base}/production/requests${query}`, token === undefined ? {} : { token })
      const first = yield* list("?limit=3")
      assert.strictEqual(first.status, 200, first.text)
      assert.deepInclude(first.body.items[1], {
        id: "3",
        method: "GET",
        host: "shop.example",
        path: "/api/down",
        status: 503,
        durationMs: 12,
        bytesIn: 345,
        bytesOut: 6789,
        outcome: "app_unreachable"
      })
      const paths = (answer: { body: { items: ReadonlyArray<{ path: string }> } }) =>
        answer.body.items.map(({ path }) => path)
      assert.deepStrictEqual(paths(first), ["/left", "/api/down", "/api/gone"])
      const rest = yield* list(`?limit=3&cursor=${first.body.nextCursor}`)
      assert.deepStrictEqual([paths(rest), rest.body.nextCursor], [["/old"], null])
      assert.deepStrictEqual(paths(yield* list("?status=5xx")), ["/api/down"])
      assert.deepStrictEqual(paths(yield* list("?status=none")), ["/left"])
      assert.deepStrictEqual(paths(yield* list("?path=/api/")), ["/api/down", "/api/gone"])
      const recent = encodeURIComponent(new Date(Date.now() - 600_000).toISOString())
      assert.deepStrictEqual(paths(yield* list(`?since=${recent}&status=2xx`)), [])
      assert.deepStrictEqual(paths(yield* call("GET", `${base}/preview/requests`)), [])
      for (const [query, status] of [
        ["?status=6xx", 422],
        ["?since=yesterday", 422],
        [`?cursor=${first.body.nextCursor}x`, 422]
      ] as const)
        assert.strictEqual((yield* list(query)).status, status, query)
      // A cursor is one list's own.
      const elsewhere = `${base}/preview/requests?cursor=${first.body.nextCursor}`
      assert.strictEqual((yield* call("GET", elsewhere)).status, 422)
      const stranger = yield* tenant()
      assert.include([403, 404], (yield* list("", stranger.owner)).status)
    })
  )

  it.effect("are shown and followed by svc requests", () =>
    Effect.gen(function* () {
      const { svc, start } = yield* Operator
      const shown = yield* svc(["requests", "shop", "--path", "/api/"])
      assert.strictEqual(shown.code, 0, shown.stderr)
      const [head, ...lines] = shown.stdout.trim().split("\n")
      assert.match(head ?? "", /^CAME +STATUS +METHOD +HOST +PATH +TOOK +IN +OUT$/)
      assert.lengthOf(lines, 2)
      assert.match(lines[0] ?? "", /503 app_unreachable +GET +shop.example +\/api\/down +12 ms +345 +6789$/)
      const parsed = JSON.parse((yield* svc(["requests", "shop", "--status", "none", "--json"])).stdout)
      assert.deepStrictEqual(
        parsed.map(({ path, outcome }: { path: string; outcome: string }) => [path, outcome]),
        [["/left", "client_closed"]]
      )

      const following = start(["requests", "shop", "--follow", "--limit", "1", "--json"])
      yield* Effect.promise(() => following.says("/left"))
      for (const number of [5, 6, 7]) yield* came(number, { path: `/new/${number}` })
      yield* Effect.promise(() => following.says("/new/7"))
      yield* came(8, { path: "/last" })
      const printed = Effect.sync(() =>
        following
          .stdout()
          .split("\n")
          .slice(0, -1)
          .map((line): string => JSON.parse(line).path)
      )
      yield* eventually("the last one is shown", printed, (paths) => paths.includes("/last"))
      assert.deepStrictEqual(yield* printed, ["/left", "/new/5", "/new/6", "/new/7", "/last"])
      following.child.kill("SIGINT")
      yield* Effect.promise(() => following.ended)
    })
  )
})
