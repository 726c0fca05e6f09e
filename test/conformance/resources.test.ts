// biome-ignore-all lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const base = "/v1/orgs/main/resources"

/** Messages of the watch until one satisfies, as `{ id, data }`. */
const watch = (url: string, key: string, lastEventId: string | undefined, until: (data: any) => boolean) =>
  Effect.promise(async () => {
    const abort = new AbortController()
    const response = await fetch(`${url}${base}/watch`, {
      signal: abort.signal,
      headers: {
        authorization: `Bearer ${key}`,
        ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId })
      }
    })
    assert.strictEqual(response.headers.get("content-type"), "text/event-stream")
    const seen: Array<{ id: string; data: any }> = []
    let buffer = ""
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      buffer += chunk
      const parts = buffer.split("\n\n")
      buffer = parts.pop() ?? ""
      for (const part of parts) {
        const id = /^id: (.*)$/m.exec(part)?.[1]
        const data = /^data: (.*)$/m.exec(part)?.[1]
        if (id === undefined || data === undefined) continue
        seen.push({ id, data: JSON.parse(data) })
        if (until(seen.at(-1)!.data)) {
          abort.abort()
          return seen
        }
      }
    }
    return seen
  }).pipe(Effect.timeout("100 seconds"))

layer(testPlane(), { excludeTestServices: true })("resources", (it) => {
  it.effect("are listed page by page, filtered, read, and told apart by tenant", () =>
    Effect.gen(function* () {
      const { call, tenant } = yield* Plane
      for (const slug of ["one", "two", "three"]) {
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: slug, slug } })
      }
      const seen: Array<string> = []
      let cursor: string | null = null
      do {
        const query: string = cursor === null ? "" : `&cursor=${cursor}`
        const page = yield* call("GET", `${base}?limit=4${query}`)
        assert.strictEqual(page.status, 200)
        seen.push(...page.body.items.map((item: { uid: string }) => item.uid))
        cursor = page.body.nextCursor
      } while (cursor !== null)
      assert.strictEqual(new Set(seen).size, 9)
      assert.strictEqual((yield* call("GET", `${base}?limit=0`)).status, 422)
      assert.strictEqual((yield* call("GET", `${base}?limit=101`)).status, 422)
      const forged = yield* call("GET", `${base}?cursor=${Buffer.from("x".repeat(40)).toString("base64url")}`)
      assert.deepStrictEqual([forged.status, forged.body.errors[0].pointer], [422, "/query/cursor"])
      assert.strictEqual((yield* call("GET", `${base}?kind=Project`)).body.items.length, 3)
      assert.strictEqual((yield* call("GET", `${base}?project=one`)).body.items.length, 3)
      assert.strictEqual((yield* call("GET", `${base}?project=nope`)).status, 404)

      const other = yield* tenant()
      assert.strictEqual((yield* call("GET", `${base}/${seen[0]}`, { token: other.owner })).status, 404)
      const theirs = yield* call("GET", `/v1/orgs/${other.slug}/resources/${seen[0]}`, { token: other.owner })
      assert.strictEqual(theirs.status, 404)
      assert.deepStrictEqual(
        (yield* call("GET", `/v1/orgs/${other.slug}/resources`, { token: other.owner })).body.items,
        []
      )
    })
  )

  it.effect("the watch gives everything there is, then each change, and resumes without loss or repeat", () =>
    Effect.gen(function* () {
      const { call, url, apiKey } = yield* Plane
      const made = yield* call("POST", "/v1/orgs/main/projects", { body: { name: "W", slug: "watched" } })
      const ready = (uid: string) => (data: any) =>
        data.resource.uid === uid &&
        data.resource.conditions.some((one: any) => one.type === "Ready" && one.status === "true")
      const first = yield* watch(url, apiKey, undefined, ready(made.body.id))
      const last = first.at(-1)!.id
      yield* call("PATCH", "/v1/orgs/main/projects/watched", { body: { name: "Changed" } })
      const second = yield* watch(
        url,
        apiKey,
        last,
        (data) => data.resource.uid === made.body.id && data.resource.generation === 2
      )
      const ids = [...first, ...second].map((message) => message.id)
      assert.strictEqual(new Set(ids).size, ids.length)
      const bad = yield* call("GET", `${base}/watch`, { headers: { "last-event-id": "x; drop" } })
      assert.strictEqual(bad.status, 422)
    })
  )

  it.effect("an operator retries, pauses, resumes, protects and abandons, and the history tells of it", () =>
    Effect.gen(function* () {
      const { call, session, sql, dataDir } = yield* Plane
      yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Ops", slug: "ops" } })
      const made = yield* call("POST", "/v1/orgs/main/projects/ops/caches", {
        body: { name: "one", sku: "cache-n1", region: "local" }
      })
      const one = `${base}/${made.body.id}`
      const until = (holds: (resource: any) => boolean) =>
        Effect.map(
          eventually("the resource is so", call("GET", one), ({ body }) => holds(body)),
          ({ body }) => body
        )

      const retried = yield* call("POST", `${one}/retry`)
      assert.strictEqual(retried.status, 202)
      yield* until((resource) => resource.handledRetry === retried.body.token)

      const paused = yield* call("POST", `${one}/pause`, { body: { reason: "looking" } })
      assert.strictEqual(paused.status, 202)
      yield* until((resource) =>
        resource.conditions.some((it: any) => it.type === "Paused" && it.status === "true")
      )
      // What is paused is observed and not touched.
      yield* call("PATCH", `/v1/orgs/main/projects/ops/caches/${made.body.id}`, {
        body: { evictionPolicy: "noeviction" }
      })
      const drifting = yield* until((resource) => resource.differences.length > 0)
      assert.strictEqual(drifting.observedGeneration, 1)
      assert.strictEqual((yield* call("POST", `${one}/resume`)).status, 202)
      yield* until((resource) => resource.observedGeneration === 2 && resource.differences.length === 0)

      yield* call("PUT", `${one}/protection`, { body: { protected: true } })
      const refused = yield* call("DELETE", "/v1/orgs/main/projects/ops", { token: session })
      assert.deepStrictEqual([refused.status, refused.body.code], [409, "protected"])
      yield* call("PUT", `${one}/protection`, { body: { protected: false } })

      const project = yield* call("GET", "/v1/orgs/main/projects/ops")
      const full = yield* call("POST", `${base}/${project.body.id}/abandon`, {
        body: { confirm: "ops", reason: "r" }
      })
      assert.deepStrictEqual([full.status, full.body.code], [409, "not_empty"])
      const unsure = yield* call("POST", `${one}/abandon`, { body: { confirm: "no", reason: "r" } })
      assert.deepStrictEqual([unsure.status, unsure.body.errors[0].pointer], [422, "/confirm"])
      const events = yield* call("GET", `${one}/events?limit=100`)
      const reasons = events.body.items.map((event: { reason: string }) => event.reason)
      assert.includeMembers(reasons, [
        "Created",
        "SpecChanged",
        "RetryRequested",
        "Paused",
        "Resumed",
        "Protected"
      ])
      const abandoned = yield* call("POST", `${one}/abandon`, {
        body: { confirm: "one", reason: "moving it" }
      })
      assert.strictEqual(abandoned.status, 200)
      assert.strictEqual(abandoned.body.leftBehind.host, "127.0.0.1")
      assert.strictEqual((yield* call("GET", one)).status, 404)
      const audited = yield* sql(`select operation from audit_log where resource = '${made.body.id}'`)
      assert.includeMembers(
        audited.map((row) => row["operation"]),
        ["caches.create", "resources.pause", "resources.retry", "resources.abandon"]
      )
      assert.isString(dataDir)
    })
  )

  it.effect("rows of a newer version are listed, shown, followed, planned around and exported", () =>
    Effect.gen(function* () {
      const { call, url, apiKey, sql } = yield* Plane
      const made = yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Newer", slug: "newer" } })
      const project = made.body.id
      const before = yield* call("GET", "/v1/orgs/main/manifest")
      // Nobody of this version looks at them any more.
      yield* sql(`delete from work w using resource r where r.uid = w.uid and r.project_id = '${project}'`)
      yield* sql(`
        update resource set phase = 'hibernating', differences = '[{"path": "/x"}]', conditions = '[
          {"type": "Replicated", "status": "partly"},
          {"type": "Ready", "status": "true", "reason": "Asleep", "message": "It sleeps",
            "lastTransitionAt": "2030-01-01T00:00:00.000Z", "observedGeneration": 1}]'
        where project_id = '${project}' and kind = 'Environment'`)
      const [row] = yield* sql(`
        insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by)
        select org_id, gen_random_uuid(), 'Telescope', project_id, name, 'hubble', uid,
          '{"lens": 1, "keys": {"A": "fingerprint"}}', 'manifest'
        from resource where project_id = '${project}' and kind = 'Environment' and name = 'production'
        returning uid`)
      const listed = yield* call("GET", `${base}?project=newer&limit=100`)
      assert.strictEqual(listed.status, 200)
      const one = (kind: string) => listed.body.items.find((item: any) => item.kind === kind)
      assert.deepInclude(one("Environment"), { phase: "ready", differences: [] })
      assert.deepStrictEqual(
        one("Environment").conditions.map(({ type, reason }: any) => [type, reason]),
        [["Ready", "Asleep"]]
      )
      assert.strictEqual(one("Telescope").address, "newer/production/Telescope/hubble")
      const shown = yield* call("GET", `${base}/${row?.["uid"]}`)
      assert.deepStrictEqual([shown.status, shown.body.spec], [200, null])
      const seen = yield* watch(url, apiKey, undefined, (data) => data.resource.kind === "Telescope")
      assert.strictEqual(seen.at(-1)?.data.resource.uid, row?.["uid"])

      const exported = yield* call("GET", "/v1/orgs/main/manifest")
      assert.deepStrictEqual([exported.status, exported.body], [200, before.body])
      const plan = (manifest: unknown) =>
        call("POST", "/v1/orgs/main/manifest/plan?prune=true&confirm=newer", { body: manifest })
      const same = yield* plan(exported.body)
      assert.strictEqual(same.status, 200)
      assert.deepInclude(same.body.summary, { create: 0, update: 0, replace: 0, delete: 0 })
      const { projects, ...rest } = exported.body
      const without = yield* plan({ ...rest, projects: projects.filter((it: any) => it.slug !== "newer") })
      assert.deepStrictEqual(
        without.body.blockers.map((blocker: any) => blocker.code),
        ["unknown_kind"]
      )
    })
  )

  it.effect("pausing a kind holds for every resource of it", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const scope = { scope: "kind", target: "Project", reason: "freeze" }
      assert.strictEqual((yield* call("POST", "/v1/orgs/main/pauses", { body: scope })).status, 202)
      const made = yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Frozen", slug: "frozen" } })
      const paused = yield* eventually(
        "it is paused",
        call("GET", `${base}/${made.body.id}`),
        ({ body }): boolean =>
          body.conditions.some((it: any) => it.type === "Paused" && it.message.includes("freeze"))
      )
      assert.strictEqual(paused.status, 200)
      assert.strictEqual(
        (yield* call("DELETE", "/v1/orgs/main/pauses?scope=kind&target=Project")).status,
        202
      )
      assert.strictEqual(
        (yield* call("POST", "/v1/orgs/main/pauses", { body: { ...scope, target: "Nope" } })).status,
        404
      )
    })
  )
})
