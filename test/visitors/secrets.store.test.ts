import { inspect } from "node:util"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { Gate } from "#src/edge/agent/Gate.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import * as gate from "#src/visitors/gate.ts"
import { Visits } from "#src/visitors/Visits.ts"
import { anotherApi } from "#test/setup/another-api.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { makeRecording } from "#test/setup/recording.ts"
import { eventually } from "#test/setup/wait.ts"

const { traced, recording } = makeRecording()

layer(testPlane({}, {}, true), { excludeTestServices: true })("what lets visitors in", (it) => {
  it.effect("stands in no log, trace, metric, audit record or event", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const { call, tenant, sql, url, dataDir, databaseUrl, metricsUrl } = yield* Plane
        const logged: Array<unknown> = []
        const logger = Logger.make((options) => void logged.push(options))
        const api = yield* anotherApi({}, {}, { logger, tracer: recording })
        const services = yield* Layer.build(
          gate.layer.pipe(
            Layer.provide([Visits.layer, Invocations.layer, PlatformSecrets.layer]),
            Layer.provide([KeyRing.layer, Db.layer({ url: Redacted.make(databaseUrl) })]),
            Layer.provide(AppConfig.layerWith({ publicUrl: url, dataDir }, {}))
          )
        )
        const edge = Context.get(services, Gate)
        const watched = <A>(self: Effect.Effect<A>) =>
          Effect.provide(self, Layer.merge(recording, Logger.layer([logger])))

        const mine = yield* tenant()
        const token = mine.owner
        const projects = `/v1/orgs/${mine.slug}/projects`
        yield* call("POST", projects, { token, body: { name: "Shop", slug: "shop" } })
        const production = yield* eventually(
          "it has an address",
          Effect.map(call("GET", `${projects}/shop/environments`, { token }), ({ body }) =>
            body.find((one: { slug: string }) => one.slug === "production")
          ),
          (one) => typeof one?.address === "string"
        )
        yield* sql(`update edge_site set access = 'organization' where org_id = '${mine.id}'`)
        const about = {
          method: "GET",
          url: "/",
          host: new URL(production.address).hostname,
          client: "192.0.2.1",
          scheme: "https" as const,
          upgrade: false,
          orgId: mine.id,
          environmentUid: production.id,
          access: "organization" as const,
          body: () => Effect.succeed(Buffer.from("{}"))
        }
        const answers: Array<unknown> = []
        const page = (path: string) =>
          Effect.promise(() =>
            fetch(`${api}${path}`, { redirect: "manual", headers: { cookie: `svc_session=${mine.member}` } })
          )
        const cookiesOf = (fields: string | ReadonlyArray<string> | undefined) =>
          [fields ?? []].flat().map((field) => field.split(";", 1)[0] ?? "")

        const left = yield* watched(edge.judge({ ...about, headers: { accept: "text/html" } }))
        if (left._tag !== "Answer") return assert.fail("it was let through")
        const [state = ""] = cookiesOf(left.headers?.["set-cookie"])
        const to = new URL(String(left.headers?.["location"]))
        const sent = yield* page(to.pathname + to.search)
        const back = new URL(sent.headers.get("location") ?? "")
        const code = back.searchParams.get("code") ?? ""
        const way = { ...about, url: back.pathname + back.search, headers: { cookie: state } }
        const entered = yield* watched(edge.own(way))
        const cookies = cookiesOf(entered.headers?.["set-cookie"])
        const [ticket = "", visit = ""] = cookies
        const renewed = yield* watched(edge.judge({ ...about, headers: { cookie: visit } }))
        assert.strictEqual(renewed._tag, "Forward")
        // Refused each.
        answers.push(
          yield* watched(edge.own(way)),
          yield* watched(edge.judge({ ...about, host: "other.test", headers: { cookie: visit } })),
          yield* watched(edge.judge({ ...about, headers: { cookie: visit, "svc-signature": code } })),
          yield* Effect.flatMap(page(`/access?host=x&state=${code}`), (shown) =>
            Effect.promise(() => shown.text())
          ),
          yield* Effect.promise(async () => (await fetch(`${metricsUrl}/metrics`)).text()),
          yield* sql("select * from audit_log"),
          yield* sql("select * from resource_event")
        )
        const values = [state, ticket, visit].map((pair) => pair.slice(pair.indexOf("=") + 1))
        const spans = traced.map(({ name, attributes, events }) => [name, [...attributes], events])
        assert.isNotEmpty(spans)
        assert.isAbove(spans.length, 10)
        const told = inspect([answers, spans, logged], {
          depth: 12,
          maxArrayLength: null,
          maxStringLength: null
        })
        for (const secret of [code, ...values]) {
          // What proves it stands after the last point: random letters, among which an underscore is one.
          const part = secret.slice(secret.lastIndexOf(".") + 1)
          assert.isAbove(part.length, 40)
          assert.notInclude(told, part)
        }
      })
    )
  )
})
