import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { DatabaseSpec } from "#schemas/database.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import {
  asApplication,
  type DatabaseResource,
  type DatabaseWorld,
  databaseReconciler,
  databaseRemains,
  databaseServices,
  databaseSnapshot,
  databaseWorld,
  disturb,
  folderOf,
  inspectDatabase,
  makeDatabase,
  settleDatabase
} from "#test/setup/databases.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { limitDrifts } from "#test/setup/groups.ts"
import { passwordOf, setPassword } from "#test/setup/machine.ts"
import { processesNaming } from "#test/setup/processes.ts"
import { changed, freeze, postmaster } from "#test/setup/replicas.ts"
import { eventually } from "#test/setup/wait.ts"
import { lifeSuite } from "./life-suite.ts"
import { look } from "./settle.ts"
import { crashes, type Subject } from "./suite.ts"

const killed = (world: DatabaseWorld, resource: DatabaseResource) =>
  Effect.gen(function* () {
    const pid = postmaster(world, resource)
    process.kill(pid, "SIGKILL")
    yield* eventually(
      "it has ended",
      Effect.sync(() => !processesNaming(resource.uid).some((one) => one.pid === pid))
    )
  })

const onDisk = (file: string, content: string) => (world: DatabaseWorld, resource: DatabaseResource) =>
  Effect.sync(() => fs.writeFileSync(path.join(folderOf(world, resource), "conf", file), content))

const subject: Subject<DatabaseWorld, DatabaseSpec, unknown> = {
  name: "a database",
  kind: "Database",
  world: databaseWorld,
  layer: databaseReconciler,
  makeResource: (world) => Effect.sync(() => makeDatabase(world)),
  snapshot: databaseSnapshot,
  remains: databaseRemains,
  changes: [
    { name: "another size", apply: (_, resource) => Effect.succeed(changed(resource, { sku: "db-s1" })) },
    {
      name: "another password",
      apply: (world, resource) =>
        Effect.sync(() => {
          setPassword(world, resource, `second-${uuid()}`)
          return changed(resource, { credentialVersion: resource.spec.credentialVersion + 1 })
        })
    }
  ],
  drifts: [
    { name: "the process was killed", field: "/process", disturb: killed },
    ...limitDrifts<DatabaseWorld>((world, uid) =>
      Number.parseInt(
        fs.readFileSync(path.join(folderOf(world, { uid }), "data", "postmaster.pid"), "utf8"),
        10
      )
    ),
    {
      name: "the access file was changed",
      field: "/configuration",
      disturb: onDisk("pg_hba.conf", "local all all trust\n")
    },
    {
      name: "the configuration file was changed",
      field: "/configuration",
      disturb: onDisk("postgresql.conf", "port = 1\n")
    },
    {
      name: "the role has another password",
      field: "/credentialVersion",
      disturb: disturb("alter role app password 'other'")
    },
    { name: "the role became a superuser", field: "/role", disturb: disturb("alter role app superuser") },
    {
      name: "the extension was dropped",
      field: "/extension",
      disturb: disturb("drop extension pg_stat_statements")
    },
    {
      name: "everybody may connect",
      field: "/access",
      disturb: disturb("grant connect on database postgres to public")
    },
    {
      name: "the certificate was replaced",
      field: "/certificate",
      disturb: (world, resource) =>
        Effect.sync(() => {
          const conf = path.join(folderOf(world, resource), "conf")
          const name = fs.readdirSync(conf).find((file) => file.endsWith(".pem"))
          fs.writeFileSync(path.join(conf, name ?? ""), "not a certificate")
        })
    },
    {
      // As it was made before containers of environments reached servers.
      name: "the certificate does not name the host that containers know",
      field: "/certificate",
      disturb: (world, resource) =>
        Effect.gen(function* () {
          const authority = yield* CertificateAuthority
          const issued = yield* Effect.orDie(authority.issue({ hosts: ["127.0.0.1", "localhost"] }))
          const conf = path.join(folderOf(world, resource), "conf")
          const name = fs.readdirSync(conf).find((file) => file.endsWith(".pem"))
          const pem = issued.certificatePem + Redacted.value(issued.privateKeyPem)
          fs.writeFileSync(path.join(conf, name ?? ""), pem)
        }).pipe(Effect.provide(databaseServices(world), { local: true }))
    }
  ],
  settleMs: 240_000,
  timeoutMs: 1_800_000
}

lifeSuite(subject)

campaign(
  it.live,
  "database-crashes",
  "control planes that die again and again while a database is made, changed and removed end where one would have",
  { rounds: 0, roundMs: 900_000 },
  crashes(subject)
)

const refused = <A>(effect: Effect.Effect<A, { readonly cause?: unknown }>) =>
  Effect.map(Effect.flip(effect), (error) => String(error.cause))

/**
 * What the application may define in its database and the control plane's superuser might stumble into: operators,
 * functions and settings that come first in the search path.
 */
const traps = `
  create table public.caught (who text, how text);
  create function public.trap() returns trigger language plpgsql as $$
    begin insert into public.caught values (current_user, 'trigger'); return new; end $$;
  create function public.same(name, text) returns boolean language plpgsql as $$
    begin insert into public.caught values (current_user, 'operator'); return true; end $$;
  create operator public.= (function = public.same, leftarg = name, rightarg = text);
  create function public.joined(text, text) returns text language plpgsql as $$
    begin insert into public.caught values (current_user, 'operator'); return ''; end $$;
  create operator public.|| (function = public.joined, leftarg = text, rightarg = text);
  create function public.current_setting(text) returns text language plpgsql as $$
    begin insert into public.caught values (current_user, 'function'); return ''; end $$;
  create function public.pg_is_in_recovery() returns boolean language plpgsql as $$
    begin insert into public.caught values (current_user, 'function'); return false; end $$;
  create view public.pg_extension as select 'pg_stat_statements' as extname from public.joined('a', 'b');
  alter database app set search_path = public, pg_catalog;
  alter database app set default_transaction_read_only = on;
`

/** One database that the tests below share, one after the other. */
class Shared extends Context.Service<Shared, { readonly world: DatabaseWorld; resource: DatabaseResource }>()(
  "test/reconcilers/SharedDatabase"
) {}
let fence = 1n

const shared = Layer.effect(
  Shared,
  Effect.gen(function* () {
    const world = yield* databaseWorld
    const resource = { ...makeDatabase(world), fence }
    yield* settleDatabase(world, resource)
    return { world, resource }
  })
)

const rotate = (shared: Shared["Service"]) =>
  Effect.suspend(() => {
    const { world, resource } = shared
    setPassword(world, resource, `next-${uuid()}`)
    const credentialVersion = resource.spec.credentialVersion + 1
    shared.resource = { ...changed(resource, { credentialVersion }), fence: ++fence }
    return settleDatabase(world, shared.resource)
  })

layer(shared, { excludeTestServices: true, timeout: "10 minutes" })("one database", (it) => {
  it.effect(
    "serves its application and nobody else",
    () =>
      Effect.gen(function* () {
        const shared = yield* Shared
        const { world, resource } = shared
        const run = (statement: string) => asApplication(world, resource, (sql) => sql.unsafe(statement))
        yield* run("create table ledger (n int); insert into ledger select generate_series(1, 1000)")

        assert.match(yield* refused(run("copy ledger to program 'cat'")), /permission denied/)
        assert.match(yield* refused(run("select pg_read_file('postmaster.pid')")), /permission denied/)
        assert.match(yield* refused(run("create role another")), /permission denied/)
        assert.match(yield* refused(run("create database another")), /permission denied/)
        const select = (sql: import("postgres").Sql) => sql`select 1`
        assert.match(
          yield* refused(asApplication(world, resource, select, { database: "postgres" })),
          /pg_hba/
        )
        assert.match(
          yield* refused(asApplication(world, resource, select, { ssl: false })),
          /pg_hba|encryption/
        )
        assert.match(
          yield* refused(asApplication(world, resource, select, { password: "guess" })),
          /password/
        )

        // A crash loses nothing that was committed.
        yield* killed(world, resource)
        yield* settleDatabase(world, { ...resource, fence: ++fence })
        const [row] = yield* asApplication(
          world,
          resource,
          (sql) => sql`select count(*)::int as n from ledger`
        )
        assert.strictEqual(row?.["n"], 1000)

        // After a rotation the old password is dead.
        const old = passwordOf(world, resource)
        yield* rotate(shared)
        assert.match(yield* refused(asApplication(world, resource, select, { password: old })), /password/)
        yield* asApplication(world, resource, select)

        // The password is in no file and in no command line.
        const secrets = [old, passwordOf(world, resource)]
        const server = yield* inspectDatabase(world, resource)
        assert.isFalse(secrets.some((secret) => JSON.stringify(server).includes(secret)))
        for (const { line } of processesNaming(resource.uid))
          assert.isFalse(secrets.some((secret) => line.includes(secret)))
      }),
    600_000
  )

  it.effect(
    "no setting that the application can read tells a folder of this machine",
    () =>
      Effect.gen(function* () {
        const { world, resource } = yield* Shared
        const told = asApplication(
          world,
          resource,
          (sql) => sql`select name, setting from pg_settings where setting like '%/%' order by name`
        )
        const settings = new Map([...(yield* told)].map(({ name, setting }) => [name, String(setting)]))
        assert.includeMembers([...settings.keys()], ["archive_command", "ssl_cert_file", "ssl_key_file"])
        for (const [name, setting] of settings) {
          assert.notInclude(setting, world.dataDir, name)
          assert.notMatch(setting, /(^|[\s'"])\//, name)
        }
        // The server finds all of it from where it works: a segment reaches the archive.
        yield* asApplication(world, resource, (sql) => sql`create table one (n int)`)
        yield* disturb("select pg_switch_wal()")(world, resource)
        const archive = path.join(folderOf(world, resource), "archive")
        yield* eventually(
          "a segment is archived",
          Effect.sync(() => fs.readdirSync(archive)),
          (names) => names.some((name) => /^[0-9A-F]{24}$/.test(name))
        )
      }),
    600_000
  )

  it.effect(
    "a server that hangs is not ready, is left alone, and is ready as soon as it goes on",
    () =>
      Effect.gen(function* () {
        const { world, resource } = yield* Shared
        const pid = postmaster(world, resource)
        const goOn = freeze(pid)
        const observation = yield* Effect.gen(function* () {
          const { reconciler } = (yield* Registry).registrations.get("Database")!
          return yield* look(reconciler, resource)
        }).pipe(
          Effect.provide(databaseReconciler(world), { local: true }),
          Effect.ensuring(Effect.sync(goOn))
        )
        assert.deepInclude(observation, { ready: false, reason: "NotAnswering", differences: [] })
        yield* settleDatabase(world, { ...resource, fence: ++fence })
        assert.strictEqual(postmaster(world, resource), pid)
      }),
    600_000
  )

  it.effect(
    "a data folder that is a link to another disk serves and archives as others do",
    () =>
      Effect.gen(function* () {
        const { world, resource } = yield* Shared
        yield* killed(world, resource)
        const data = path.join(folderOf(world, resource), "data")
        const elsewhere = path.join(world.dataDir, "other", "disk")
        fs.mkdirSync(path.dirname(elsewhere), { mode: 0o755 })
        fs.renameSync(data, elsewhere)
        fs.symlinkSync(elsewhere, data)
        yield* settleDatabase(world, { ...resource, fence: ++fence })
        yield* asApplication(world, resource, (sql) => sql`create table linked (n int)`)
      }),
    600_000
  )

  it.effect(
    "statement statistics are the application's to read and not to lose",
    () =>
      Effect.gen(function* () {
        const { world, resource } = yield* Shared
        const run = (statement: string) => asApplication(world, resource, (sql) => sql.unsafe(statement))
        assert.match(yield* refused(run("drop extension pg_stat_statements")), /must be owner/)
        assert.match(yield* refused(run("drop schema extensions cascade")), /must be owner/)
        assert.match(yield* refused(run("create table extensions.mine (n int)")), /permission denied/)
        // The usual way to empty a database.
        yield* run("drop schema public cascade; create schema public; create table public.again (n int)")
        const [row] = yield* asApplication(
          world,
          resource,
          (sql) => sql`select count(*)::int as n from pg_stat_statements where query like '%again%'`
        )
        assert.isNumber(row?.["n"])
      }),
    600_000
  )

  it.effect(
    "nothing that the application defines is run by the control plane",
    () =>
      Effect.gen(function* () {
        const shared = yield* Shared
        const { world, resource } = shared
        const run = (statement: string) => asApplication(world, resource, (sql) => sql.unsafe(statement))
        yield* run(traps)
        // The traps do catch whoever walks into them.
        const path = "set transaction_read_only = off; set search_path = public, pg_catalog;"
        yield* run(`${path} select 1 from pg_catalog.pg_class where relname = 'caught'::text`)
        const caught = asApplication(world, resource, (sql) => sql`select distinct who from public.caught`)
        assert.deepStrictEqual([...(yield* caught)], [{ who: "app" }])

        // A look, a rotation, each repair: all that the control plane does inside of the server.
        yield* inspectDatabase(world, resource)
        yield* rotate(shared)
        yield* disturb("drop extension pg_stat_statements")(world, resource)
        yield* disturb("grant connect on database postgres to public")(world, resource)
        yield* settleDatabase(world, { ...shared.resource, fence: ++fence })
        assert.deepStrictEqual([...(yield* caught)], [{ who: "app" }])

        const hooked = "create event trigger hook on ddl_command_end execute function public.trap()"
        assert.match(yield* refused(run(`${path} ${hooked}`)), /permission denied|must be superuser/)
      }),
    600_000
  )
})
