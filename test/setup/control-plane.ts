/** A whole control plane in this process: real store, real engine, real servers, HTTP on free ports. */

import { randomUUIDv7 } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { TracerEnabled } from "effect/References"
import * as Reactivity from "effect/reactivity/Reactivity"
import { digestOf } from "#src/access/Access.ts"
import { newApiKey, newSessionToken } from "#src/access/bootstrap.ts"
import { AppConfig, type Settings } from "#src/config.ts"
import { controlPlane, FirstStart } from "#src/main.ts"
import { migratedDatabase } from "./database.ts"
import { asDocumented } from "./documented.ts"
import { freePort, managedPorts } from "./postgres.ts"
import { sweep } from "./processes.ts"

export interface Answer {
  readonly status: number
  readonly headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
  readonly body: any
  readonly text: string
}

export interface RequestOptions {
  readonly token?: string | null
  readonly body?: unknown
  /** Sent as it is, without being made JSON. */
  readonly raw?: string
  readonly headers?: Record<string, string>
}

export interface Tenant {
  readonly id: string
  readonly slug: string
  readonly owner: string
  /** Sessions of other members. */
  readonly admin: string
  readonly member: string
  readonly adminKey: string
  readonly memberKey: string
}

export class Plane extends Context.Service<
  Plane,
  {
    readonly url: string
    readonly metricsUrl: string
    readonly dataDir: string
    readonly databaseUrl: string
    readonly apiKey: string
    readonly session: string
    /** Signs the owner in in a browser, once. */
    readonly signInUrl: string
    /** Calls with the admin key unless told otherwise; `null` sends no credential. */
    readonly call: (method: string, path: string, options?: RequestOptions) => Effect.Effect<Answer>
    /** Another organization with a session for each role and keys of both roles. */
    readonly tenant: (billing?: string) => Effect.Effect<Tenant>
    /** A statement on the store, as its owner. */
    readonly sql: (text: string) => Effect.Effect<ReadonlyArray<Record<string, unknown>>>
  }
>()("test/Plane") {}

const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
  (dataDir) => Effect.promise(() => sweep(dataDir))
)

/** Traces nothing unless `traced`, as a program without a collector. */
export const testPlane = (
  settings: Partial<Settings> = {},
  variables: Readonly<Record<string, string>> = {},
  traced = false
) =>
  Layer.effect(
    Plane,
    Effect.gen(function* () {
      const dataDir = yield* folder
      const url = yield* migratedDatabase
      const [port, metricsPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
      const config = AppConfig.layerWith(
        {
          dataDir,
          databaseUrl: url,
          managedPorts,
          port,
          metricsPort,
          publicUrl: `http://127.0.0.1:${port}`,
          rateLimit: 100_000,
          // An edge takes a server of its own: who needs one says so.
          roles: new Set(["api", "engine"]),
          ...settings
        },
        // Images of the world's registries are not for tests: who builds names one of its own.
        { SVC_BUILD_IMAGE: "", ...variables }
      )
      const quiet = Layer.merge(Logger.layer([]), Layer.succeed(TracerEnabled, traced))
      const context = yield* Layer.build(controlPlane.pipe(Layer.provide(config), Layer.provide(quiet)))
      const { made } = Context.get(context, FirstStart)
      if (made === undefined) return yield* Effect.die("the store was not empty")
      const apiKey = Redacted.value(made.apiKey)
      const admin = yield* PgClient.makeClient({ url }).pipe(Effect.provide(Reactivity.layer), Effect.orDie)
      const base = `http://127.0.0.1:${port}`
      const call = (method: string, target: string, options: RequestOptions = {}) =>
        Effect.promise(async (): Promise<Answer> => {
          const token = options.token === undefined ? apiKey : options.token
          const body = options.raw ?? (options.body === undefined ? undefined : JSON.stringify(options.body))
          const response = await fetch(`${base}${target}`, {
            method,
            headers: {
              ...(token === null ? {} : { authorization: `Bearer ${token}` }),
              ...(body === undefined ? {} : { "content-type": "application/json" }),
              // One that was kept open may be closed by the server at the moment at which the next request is sent.
              connection: "close",
              ...options.headers
            },
            ...(body === undefined ? {} : { body })
          })
          const text = await response.text()
          const sent = options.headers?.["content-type"] === undefined ? body : undefined
          const { status, headers } = response
          asDocumented({ method, path: target, sent, status, headers, text })
          const isJson = /[/+]json\b/.test(response.headers.get("content-type") ?? "")
          return {
            status: response.status,
            headers: response.headers,
            text,
            body: isJson ? JSON.parse(text) : text
          }
        })
      return Plane.of({
        url: base,
        metricsUrl: `http://127.0.0.1:${metricsPort}`,
        dataDir,
        databaseUrl: Redacted.value(url),
        apiKey,
        session: Redacted.value(made.session),
        signInUrl: Redacted.value(made.signInUrl),
        call,
        sql: (text) => Effect.orDie(admin.unsafe<Record<string, unknown>>(text)),
        tenant: (billing = "active") =>
          Effect.gen(function* () {
            const id = randomUUIDv7()
            const slug = `t-${id.slice(-12)}`
            const sessions = { owner: newSessionToken(), admin: newSessionToken(), member: newSessionToken() }
            const [adminKey, memberKey] = [newApiKey(), newApiKey()]
            // The owner came first, also where all of them come within the same millisecond.
            const members = Object.keys(sessions)
              .map(() => randomUUIDv7())
              .sort()
            const people = Object.entries(sessions).map(([role, token], index) => ({
              role,
              user_id: randomUUIDv7(),
              member_id: members[index],
              session_id: randomUUIDv7(),
              digest: digestOf(token).toString("hex")
            }))
            const keys = (
              [
                ["admin", adminKey],
                ["member", memberKey]
              ] as const
            ).map(([role, key]) => ({
              role,
              id: randomUUIDv7(),
              key_prefix: key.slice(0, 8),
              digest: digestOf(key).toString("hex")
            }))
            // In one statement: some tests make hundreds of them.
            yield* admin`
              with people as (
                select * from jsonb_to_recordset(${admin.json(people)})
                  as one(role text, user_id uuid, member_id uuid, session_id uuid, digest text)
              ), keys as (
                select * from jsonb_to_recordset(${admin.json(keys)})
                  as one(role text, id uuid, key_prefix text, digest text)
              ), organizations as (
                insert into organization (id, name, slug, billing_status) values (${id}, ${slug}, ${slug}, ${billing})
              ), accounts as (
                insert into account (id, email, name)
                select user_id, role || '-' || ${slug} || '@example.test', role from people
              ), members as (
                insert into member (org_id, id, user_id, role) select ${id}, member_id, user_id, role from people
              ), sessions as (
                insert into session (id, digest, user_id, expires_at)
                select session_id, decode(digest, 'hex'), user_id, now() + interval '1 day' from people
              )
              insert into api_key (org_id, id, name, key_prefix, digest, role)
              select ${id}, id, role, key_prefix, decode(digest, 'hex'), role from keys`
            return { id, slug, ...sessions, adminKey, memberKey }
          }).pipe(Effect.orDie)
      })
    })
  )
