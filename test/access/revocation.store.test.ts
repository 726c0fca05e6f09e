import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { anotherApi } from "#test/setup/another-api.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

interface Seen {
  readonly sentAt: number
  readonly status: number
}

/** Requests without a pause on both servers until told to stop. */
const burst = (
  urls: ReadonlyArray<string>,
  path: string,
  token: string,
  seen: Array<Seen>,
  until: () => boolean
) =>
  Effect.forEach(
    Array.from({ length: 12 }, (_, lane) => urls[lane % urls.length] ?? ""),
    (url) =>
      Effect.promise(async () => {
        while (!until()) {
          const sentAt = performance.now()
          const response = await fetch(`${url}${path}`, {
            headers: { authorization: `Bearer ${token}` },
            signal: AbortSignal.timeout(90_000)
          })
          await response.arrayBuffer()
          seen.push({ sentAt, status: response.status })
        }
      }),
    { concurrency: "unbounded" }
  )

const revocations: ReadonlyArray<{
  readonly name: string
  readonly after: number
  readonly make: (plane: Plane["Service"]) => Effect.Effect<{
    readonly path: string
    readonly token: string
    readonly revoke: Effect.Effect<{ readonly status: number }>
  }>
}> = [
  {
    name: "a key that is revoked",
    after: 401,
    make: ({ call, tenant }) =>
      Effect.gen(function* () {
        const { slug, owner: token } = yield* tenant()
        const made = yield* call("POST", `/v1/orgs/${slug}/api-keys`, { token, body: { name: "k" } })
        return {
          path: `/v1/orgs/${slug}/projects`,
          token: made.body.key,
          revoke: call("DELETE", `/v1/orgs/${slug}/api-keys/${made.body.id}`, { token })
        }
      })
  },
  {
    name: "a member who is removed",
    after: 404,
    make: ({ call, tenant }) =>
      Effect.gen(function* () {
        const { slug, owner: token, member } = yield* tenant()
        const listed = yield* call("GET", `/v1/orgs/${slug}/members`, { token })
        const { id } = listed.body.find(({ role }: { role: string }) => role === "member")
        return {
          path: `/v1/orgs/${slug}/projects`,
          token: member,
          revoke: call("DELETE", `/v1/orgs/${slug}/members/${id}`, { token })
        }
      })
  },
  {
    name: "an admin who is demoted",
    after: 403,
    make: ({ call, tenant }) =>
      Effect.gen(function* () {
        const { slug, owner: token, admin } = yield* tenant()
        const listed = yield* call("GET", `/v1/orgs/${slug}/members`, { token })
        const { id } = listed.body.find(({ role }: { role: string }) => role === "admin")
        return {
          path: `/v1/orgs/${slug}/audit`,
          token: admin,
          revoke: call("PATCH", `/v1/orgs/${slug}/members/${id}`, { token, body: { role: "member" } })
        }
      })
  },
  {
    name: "an organization that is deleted",
    after: 404,
    make: ({ call, tenant }) =>
      Effect.gen(function* () {
        const { slug, owner: token, member } = yield* tenant()
        return {
          path: `/v1/orgs/${slug}`,
          token: member,
          revoke: call("DELETE", `/v1/orgs/${slug}`, { token })
        }
      })
  }
]

layer(testPlane(), { excludeTestServices: true })("revocation", (it) => {
  for (const { name, after, make } of revocations) {
    it.effect(`${name} opens nothing from the answer on, in every process`, () =>
      Effect.scoped(
        Effect.gen(function* () {
          const plane = yield* Plane
          const urls = [plane.url, yield* anotherApi()]
          const { path, token, revoke } = yield* make(plane)
          let stop = false
          const seen: Array<Seen> = []
          const enough = (which: (one: Seen) => boolean) =>
            eventually(
              "thirty more answers",
              Effect.sync(() => seen.filter(which).length),
              (count) => count > 30
            )
          const running = yield* Effect.forkChild(burst(urls, path, token, seen, () => stop))
          yield* enough(({ status }) => status === 200)
          const answered = yield* revoke
          const answeredAt = performance.now()
          yield* enough(({ sentAt }) => sentAt > answeredAt)
          stop = true
          yield* Fiber.join(running)
          assert.strictEqual(answered.status, 200)
          const late = seen.filter(({ sentAt }) => sentAt > answeredAt)
          assert.deepStrictEqual([...new Set(late.map(({ status }) => status))], [after])
          // In between nobody sees anything but the one or the other.
          for (const { status } of seen) assert.include([200, after], status)
        })
      )
    )
  }

  it.effect("a stream that was open tells nothing of what happens after its credential ended", () =>
    Effect.gen(function* () {
      const { call, tenant, url } = yield* Plane
      const { slug, owner: token } = yield* tenant()
      const made = yield* call("POST", `/v1/orgs/${slug}/api-keys`, { token, body: { name: "k" } })
      const project = (name: string) =>
        call("POST", `/v1/orgs/${slug}/projects`, { token, body: { name, slug: name } })
      let told = ""
      const ended = yield* Effect.forkChild(
        Effect.promise(async () => {
          const response = await fetch(`${url}/v1/orgs/${slug}/resources/watch`, {
            headers: { authorization: `Bearer ${made.body.key}` },
            signal: AbortSignal.timeout(110_000)
          })
          for await (const text of response.body?.pipeThrough(new TextDecoderStream()) ?? []) told += text
        })
      )
      yield* project("before")
      yield* eventually(
        "the stream tells of it",
        Effect.sync(() => told),
        (text) => text.includes("before")
      )
      yield* call("DELETE", `/v1/orgs/${slug}/api-keys/${made.body.id}`, { token })
      yield* project("after")
      yield* Fiber.join(ended)
      assert.notInclude(told, "after")
    })
  )

  it.effect("keys that are unknown, revoked, or whose creator left look alike", () =>
    Effect.gen(function* () {
      const { call, tenant, sql } = yield* Plane
      const mine = yield* tenant()
      const org = `/v1/orgs/${mine.slug}`
      const made = yield* call("POST", `${org}/api-keys`, { token: mine.admin, body: { name: "k" } })
      yield* sql(`delete from member where org_id = '${mine.id}' and role = 'admin'`)
      yield* sql(`update api_key set revoked_at = now() where org_id = '${mine.id}' and name = 'member'`)
      const answers = yield* Effect.forEach(
        [`svc_${"0".repeat(40)}`, mine.memberKey, made.body.key, "nonsense"],
        (token) => call("GET", `${org}/projects`, { token })
      )
      const bodies = answers.map(({ status, body, headers }) => {
        const { requestId: _, ...rest } = body
        return { status, ...rest, challenge: headers.get("www-authenticate") }
      })
      assert.strictEqual(bodies[0]?.status, 401)
      for (const body of bodies) assert.deepStrictEqual(body, bodies[0])
    })
  )
})
