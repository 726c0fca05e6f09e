import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { AppConfig } from "#src/config.ts"
import * as deliver from "#src/mail/deliver.ts"
import { insertMail, type Letter, Mail } from "#src/mail/Mail.ts"
import { invitation, signInLink } from "#src/mail/messages.ts"
import { Outbox } from "#src/mail/Outbox.ts"
import { Transport } from "#src/mail/Transport.ts"
import { Db, inOrg } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { mailServer } from "./server.ts"

const secret = "f00dcafe".repeat(5)
const letter = (to: string, values: Partial<Letter> = {}): Letter => ({
  ...signInLink(`https://svc.example/sign-in/link?token=${secret}`, 15),
  to,
  orgId: null,
  usefulSeconds: 3600,
  ...values
})

const post = (one: Letter) =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const row = (yield* Mail).prepare(one)
    yield* Effect.orDie(sql`${insertMail(sql, row)}`)
    return row.id
  })

interface OutboxEntry {
  readonly state: string
  readonly attempt: number
  readonly last_error: string | null
  readonly sealed: Uint8Array | null
}
const entry = (id: string) =>
  Effect.gen(function* () {
    const { engine: sql } = yield* Db
    const [row] = yield* Effect.orDie(
      sql<OutboxEntry>`select state, attempt, last_error, sealed from mail_outbox where id = ${id}::uuid`
    )
    if (row === undefined) throw new Error(`no mail ${id}`)
    return row
  })
const until = <A, E, R>(self: Effect.Effect<A, E, R>, holds: (value: A) => boolean) =>
  eventually("the mail has come so far", self, holds)
/** Due at once, whoever had it: a deliverer that was stopped may have claimed it just then. */
const free = Effect.fn(function* (id: string) {
  const { engine: sql } = yield* Db
  yield* Effect.orDie(sql`update mail_outbox set last_error = null, lease_token = null, due_at = now()
    where id = ${id}::uuid`)
})
const settled = (id: string) => until(entry(id), ({ state }) => state !== "waiting")

/** A deliverer as one process has it, with everything it logs. */
const deliverer = (settings: { readonly smtp?: string; readonly folder?: string }) =>
  Effect.gen(function* () {
    const log: Array<string> = []
    const config = AppConfig.layerFrom({
      SVC_SMTP_URL: settings.smtp,
      SVC_MAIL_DIR: settings.folder,
      SVC_MAIL_FROM: "svc <no-reply@svc.example>"
    })
    yield* Layer.build(
      Layer.fresh(deliver.layer).pipe(
        Layer.provide(Layer.fresh(Layer.mergeAll(Outbox.layer, Transport.layer))),
        Layer.provide(config),
        Layer.provide(
          Logger.layer([
            Logger.map(Logger.formatLogFmt, (line) => {
              log.push(line)
            })
          ])
        )
      )
    )
    return { log }
  })

const Fixture = Mail.layer.pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

layer(Fixture, { excludeTestServices: true })("mail", (it) => {
  it.effect("goes to an SMTP server, and what it said is gone from the store", () =>
    Effect.gen(function* () {
      const server = yield* mailServer()
      yield* server.start
      const { log } = yield* deliverer({ smtp: `smtp://127.0.0.1:${server.port}` })
      const id = yield* post(letter("ann@example.com"))
      const done = yield* settled(id)
      assert.deepStrictEqual([done.state, done.attempt, done.sealed], ["sent", 1, null])
      assert.deepStrictEqual(
        server.received.map(({ to, messageId }) => [to, messageId]),
        [["ann@example.com", `<${id}@svc.example>`]]
      )
      assert.include(server.received[0]?.source ?? "", secret)
      assert.include(server.received[0]?.source ?? "", "Auto-Submitted: auto-generated")
      assert.notInclude(log.join("\n"), secret)
    })
  )

  it.effect("is stored sealed, and a failure's message holds nothing of it", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const id = yield* post(letter("sealed@example.com"))
      const [row] = yield* sql<{ readonly text: string }>`
        select mail_outbox::text || encode(sealed, 'escape') as text from mail_outbox where id = ${id}::uuid`
      assert.notInclude(row?.text ?? secret, secret)
      assert.notInclude(row?.text ?? secret, Buffer.from(secret).toString("hex"))
      yield* sql`delete from mail_outbox where id = ${id}::uuid`
    })
  )

  it.effect(
    "waits while the server is dead, however many there are, and all of it arrives when it is back",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        const server = yield* mailServer()
        const { log } = yield* deliverer({ smtp: `smtp://127.0.0.1:${server.port}` })
        const ids = yield* Effect.forEach(Array.from({ length: 60 }), (_, i) =>
          post(letter(`p${i}@example.com`))
        )
        yield* until(
          sql<{
            readonly errors: number
          }>`select count(last_error)::int as errors from mail_outbox where state = 'waiting'`,
          ([row]) => (row?.errors ?? 0) > 0
        )
        assert.strictEqual(server.received.length, 0)
        yield* server.start
        for (const id of ids) assert.strictEqual((yield* settled(id)).state, "sent")
        assert.strictEqual(server.received.length, 60)
        assert.strictEqual(new Set(server.received.map(({ messageId }) => messageId)).size, 60)
        // One mail at a time knocks at a dead server: the others were not tried in vain.
        const [tries] = yield* sql<{ readonly sum: number }>`
        select sum(attempt)::int as sum from mail_outbox where id = any(${ids}::uuid[])`
        assert.isBelow(tries?.sum ?? 1000, 60 * 2)
        assert.notInclude(log.join("\n"), secret)
      })
  )

  it.effect("whose delivery was not confirmed is sent again under the same message id", () =>
    Effect.gen(function* () {
      const server = yield* mailServer()
      server.vanishAfterData = 1
      yield* server.start
      yield* deliverer({ smtp: `smtp://127.0.0.1:${server.port}` })
      const id = yield* post(letter("twice@example.com"))
      assert.strictEqual((yield* settled(id)).state, "sent")
      assert.deepStrictEqual(
        server.received.map(({ messageId }) => messageId),
        [`<${id}@svc.example>`, `<${id}@svc.example>`]
      )
    })
  )

  it.effect(
    "that a process had not begun when it was stopped goes out by another at once, and what it had begun waits",
    () =>
      Effect.gen(function* () {
        const { engine: sql } = yield* Db
        const server = yield* mailServer()
        server.hang = true
        yield* server.start
        const url = `smtp://127.0.0.1:${server.port}`
        const ids = yield* Effect.forEach(Array.from({ length: 10 }), (_, i) =>
          post(letter(`s${i}@example.com`))
        )
        const count = sql<{ readonly n: number }>`
        select count(*)::int as n from mail_outbox where id = any(${ids}::uuid[]) and lease_token is not null`
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* deliverer({ smtp: url })
            yield* until(
              Effect.sync(() => server.hanging),
              (hanging) => hanging === 4
            )
            // No more is claimed than is begun.
            assert.strictEqual((yield* count)[0]?.n, 4)
          })
        )
        // The ones under way may have arrived or not: they are not sent again before their leases end.
        assert.strictEqual((yield* count)[0]?.n, 4)
        server.hang = false
        yield* deliverer({ smtp: url })
        yield* until(
          Effect.sync(() => server.received.length),
          (received) => received >= 6
        )
        yield* sql`delete from mail_outbox`
      })
  )

  it.effect("that a process left behind claimed is sent by another once its lease has ended", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const id = yield* post(letter("orphan@example.com"))
      const outbox = Context.get(yield* Layer.build(Layer.fresh(Outbox.layer)), Outbox)
      const [claimed] = yield* outbox.claim(1)
      assert.strictEqual(claimed?.id, id)
      assert.deepStrictEqual(yield* outbox.claim(1), [])
      const server = yield* mailServer()
      yield* server.start
      yield* deliverer({ smtp: `smtp://127.0.0.1:${server.port}` })
      yield* sql`update mail_outbox set due_at = now() where id = ${id}::uuid`
      yield* sql`select pg_notify('svc_mail', '')`
      assert.strictEqual((yield* settled(id)).state, "sent")
      // The one that was slow finds that it holds nothing any more.
      yield* outbox.failed(claimed!, "too late")
      assert.strictEqual((yield* entry(id)).state, "sent")
    })
  )

  it.effect("to a mailbox that does not exist is given up; one that is refused for now is tried again", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const server = yield* mailServer()
      yield* server.start
      server.refuse = (to) =>
        to.startsWith("nobody")
          ? { code: 550, text: "no such mailbox" }
          : to.startsWith("policy")
            ? { code: 550, text: "5.7.1 relaying denied" }
            : to.startsWith("full")
              ? { code: 452, text: "mailbox is full" }
              : undefined
      yield* deliverer({ smtp: `smtp://127.0.0.1:${server.port}` })
      const nobody = yield* post(letter("nobody@example.com"))
      const policy = yield* post(letter("policy@example.com"))
      const full = yield* post(letter("full@example.com"))
      const gone = yield* settled(nobody)
      assert.deepStrictEqual([gone.state, gone.sealed], ["failed", null])
      assert.include(gone.last_error ?? "", "no such mailbox")
      for (const id of [policy, full]) {
        const held = yield* until(entry(id), ({ last_error }) => last_error !== null)
        assert.strictEqual(held.state, "waiting")
        assert.isNotNull(held.sealed)
      }
      // A refused recipient does not hold up the others.
      assert.strictEqual((yield* settled(yield* post(letter("fine@example.com")))).state, "sent")
      server.refuse = undefined
      yield* sql`update mail_outbox set due_at = now() where state = 'waiting'`
      yield* sql`select pg_notify('svc_mail', '')`
      for (const id of [policy, full]) assert.strictEqual((yield* settled(id)).state, "sent")
    })
  )

  it.effect(
    "that is of no use any more is given up, and a wrong login is not taken for the mail's fault",
    () =>
      Effect.gen(function* () {
        const server = yield* mailServer()
        yield* server.start
        const late = yield* post(letter("late@example.com", { usefulSeconds: -1 }))
        const fresh = yield* post(letter("fresh@example.com"))
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { log } = yield* deliverer({ smtp: `smtp://user:wr0ng-pass@127.0.0.1:${server.port}` })
            assert.strictEqual((yield* settled(late)).state, "failed")
            const held = yield* until(entry(fresh), ({ last_error }) => last_error !== null)
            assert.strictEqual(held.state, "waiting")
            assert.notInclude(`${held.last_error} ${log.join("\n")}`, "wr0ng-pass")
          })
        )
        yield* free(fresh)
        yield* deliverer({ smtp: `smtp://user:right@127.0.0.1:${server.port}` })
        assert.strictEqual((yield* settled(fresh)).state, "sent")
        assert.deepStrictEqual(
          server.received.map(({ to }) => to),
          ["fresh@example.com"]
        )
      })
  )

  it.effect("of several processes goes out once each", () =>
    Effect.gen(function* () {
      const server = yield* mailServer()
      yield* server.start
      const url = `smtp://127.0.0.1:${server.port}`
      yield* Effect.all([deliverer({ smtp: url }), deliverer({ smtp: url }), deliverer({ smtp: url })])
      const ids = yield* Effect.forEach(Array.from({ length: 80 }), (_, i) =>
        post(letter(`m${i}@example.com`))
      )
      for (const id of ids) assert.strictEqual((yield* settled(id)).attempt, 1)
      assert.strictEqual(server.received.length, 80)
    })
  )

  it.effect("becomes files where no server is configured, for this user alone; the log has no token", () =>
    Effect.gen(function* () {
      const folder = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "svc-mail-")), "mail")
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => fs.rmSync(path.dirname(folder), { recursive: true }))
      )
      const { log } = yield* deliverer({ folder })
      const id = yield* post(letter("files@example.com"))
      assert.strictEqual((yield* settled(id)).state, "sent")
      const names = fs.readdirSync(folder)
      assert.strictEqual(names.length, 1)
      const file = path.join(folder, names[0]!)
      assert.match(names[0]!, new RegExp(`^\\d{4}-.*-${id}\\.eml$`))
      assert.strictEqual(fs.statSync(file).mode & 0o777, 0o600)
      assert.strictEqual(fs.statSync(folder).mode & 0o777, 0o700)
      const source = fs.readFileSync(file, "utf8").replaceAll("=\r\n", "")
      assert.include(source, "To: files@example.com")
      assert.include(source, secret)
      assert.include(log.join("\n"), file)
      assert.notInclude(log.join("\n"), secret)
    })
  )

  it.effect(
    "about an organization can be promised in a request's own statement, and read by no request",
    () =>
      Effect.gen(function* () {
        const { api: sql } = yield* Db
        const mail = yield* Mail
        const mine = yield* makeOrganization()
        const other = yield* makeOrganization()
        const prepared = (orgId: string | null) => mail.prepare(letter("guest@example.com", { orgId }))
        const insert = (row: ReturnType<typeof prepared>, inside: string) => sql`
        with named as materialized (select 1 as done where ${inOrg(sql, inside)}),
        queued as (${insertMail(sql, row, sql`exists (select from named)`)})
        select done from named`
        const row = prepared(mine.id)
        yield* insert(row, mine.id)
        assert.strictEqual((yield* entry(row.id)).state, "waiting")
        for (const orgId of [other.id, null]) {
          const refused = yield* Effect.exit(insert(prepared(orgId), mine.id))
          assert.strictEqual(refused._tag, "Failure")
        }
        assert.strictEqual((yield* Effect.exit(sql`select id from mail_outbox`))._tag, "Failure")
        yield* (yield* Db).engine`delete from mail_outbox`
      })
  )

  it.effect(
    "goes over an encrypted connection whose certificate is good, or waits; a password goes over no other",
    () =>
      Effect.gen(function* () {
        const server = yield* mailServer()
        yield* server.start
        const id = yield* post(letter("tls@example.com"))
        /** What keeps a deliverer from sending it. Once that one has stopped, it is as if it had not been. */
        const heldBy = Effect.fn(function* (smtp: string) {
          const { state, last_error } = yield* Effect.scoped(
            Effect.andThen(
              deliverer({ smtp }),
              until(entry(id), (now) => now.last_error !== null)
            )
          )
          assert.strictEqual(state, "waiting")
          yield* free(id)
          return last_error ?? ""
        })
        // Plain where TLS is asked for.
        yield* heldBy(`smtps://127.0.0.1:${server.port}`)
        const address = Object.values(os.networkInterfaces())
          .flat()
          .find((one) => one?.family === "IPv4" && !one.internal)?.address
        if (address !== undefined) {
          const told = yield* heldBy(`smtp://user:right@${address}:${server.port}`)
          assert.notInclude(told, "right")
        }
        const secure = yield* mailServer(undefined, true)
        yield* secure.start
        const why = yield* heldBy(`smtps://127.0.0.1:${secure.port}`)
        assert.match(why, /self.signed certificate|certificate has expired/)
        assert.deepStrictEqual(
          [...server.received, ...secure.received, ...server.logins, ...secure.logins],
          []
        )
        yield* (yield* Db).engine`delete from mail_outbox where id = ${id}::uuid`
      })
  )

  it.effect("text that people chose makes no other header field and no other recipient", () =>
    Effect.gen(function* () {
      const server = yield* mailServer()
      yield* server.start
      yield* deliverer({ smtp: `smtp://127.0.0.1:${server.port}` })
      const hostile = "Shop\r\nBcc: victim@example.com\r\n\r\nhello"
      const id = yield* post(
        letter("one@example.com", invitation(hostile, `Eve${hostile}`, "member", "https://svc.example/i", 7))
      )
      assert.strictEqual((yield* settled(id)).state, "sent")
      assert.deepStrictEqual(
        server.received.map(({ to }) => to),
        ["one@example.com"]
      )
      const head = server.received[0]?.source.split("\r\n\r\n", 1)[0] ?? ""
      assert.notMatch(head, /^bcc:/im)
    })
  )
})
