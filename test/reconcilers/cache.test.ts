import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import { it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as TestClock from "effect/testing/TestClock"
import type { CacheSpec } from "#schemas/cache.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { setSettings, setUsers } from "#src/infra/redis/RedisControl.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import {
  type CacheResource,
  type CacheWorld,
  cacheReconciler,
  cacheRemains,
  cacheServices,
  cacheSnapshot,
  cacheWorld,
  controlOf,
  folderOf,
  makeCache,
  socketOf
} from "#test/setup/caches.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { limitDrifts } from "#test/setup/groups.ts"
import { passwordOf, setPassword } from "#test/setup/machine.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { freePort } from "#test/setup/postgres.ts"
import { killNaming, processesNaming } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"
import { crashes, reconcilerSuite, type Subject } from "./suite.ts"

const changed = (resource: CacheResource, values: Partial<CacheSpec>): CacheResource => ({
  ...resource,
  generation: resource.generation + 1,
  spec: { ...resource.spec, ...values }
})

const onDisk = (disturb: (folder: string) => void) => (world: CacheWorld, resource: CacheResource) =>
  Effect.sync(() => disturb(folderOf(world, resource)))

const setting = (name: string, value: string) => (world: CacheWorld, resource: CacheResource) =>
  Effect.flatMap(controlOf(world, resource), (endpoint) => setSettings(endpoint, [[name, value]]))

const user =
  (name: string, ...rules: ReadonlyArray<string>) =>
  (world: CacheWorld, resource: CacheResource) =>
    Effect.flatMap(controlOf(world, resource), (endpoint) =>
      setUsers(endpoint, new Map([[name, rules]]), { disconnect: false, others: [] })
    )

/** What a certificate has to name. */
const names = ["127.0.0.1", "services.svc.internal", "localhost"] as const
/** The one in use: the one before it is kept for a while. */
const certificateIn = (folder: string): string =>
  path.join(folder, String(JSON.parse(fs.readFileSync(path.join(folder, "server.json"), "utf8")).certificate))

const day = 86_400_000
const digest = (password: string): string => `#${createHash("sha256").update(password).digest("hex")}`
/** Gives the application user other rules under the password it has. */
const appUser =
  (...rules: ReadonlyArray<string>) =>
  (world: CacheWorld, resource: CacheResource) =>
    user("svc", "on", digest(passwordOf(world, resource)), ...rules)(world, resource)

const subject: Subject<CacheWorld, CacheSpec, unknown> = {
  name: "a cache that keeps an append-only file",
  kind: "Cache",
  world: cacheWorld,
  layer: cacheReconciler,
  makeResource: (world) => Effect.sync(() => makeCache(world)),
  snapshot: cacheSnapshot,
  remains: cacheRemains,
  changes: [
    {
      name: "another size and another eviction policy",
      apply: (_, resource) =>
        Effect.succeed(changed(resource, { sku: "cache-s1", evictionPolicy: "noeviction" }))
    },
    {
      name: "no persistence any more",
      apply: (_, resource) => Effect.succeed(changed(resource, { persistence: "none" }))
    },
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
    {
      name: "the process was killed",
      field: "/process",
      disturb: (world, resource) => killed(world, resource)
    },
    {
      name: "the control socket is gone",
      field: "/process",
      disturb: (world, { uid }) => Effect.sync(() => fs.rmSync(socketOf(world, uid)))
    },
    {
      name: "the control user has another password",
      field: "/process",
      disturb: user("svc-control", "on", digest("other"), "+@all")
    },
    {
      name: "the control user may not end scripts, as in earlier versions",
      field: "/access",
      disturb: (world, resource) =>
        Effect.flatMap(controlOf(world, resource), (endpoint) =>
          user(
            "svc-control",
            "on",
            digest(Redacted.value(endpoint.password)),
            ..."-@all +acl +config|get +config|set +client|kill +info +multi +exec".split(" ")
          )(world, resource)
        )
    },
    { name: "other memory", field: "/sku", disturb: setting("maxmemory", "1mb") },
    {
      name: "buffers without bound",
      field: "/sku",
      disturb: setting("client-output-buffer-limit", "normal 0 0 0")
    },
    { name: "clients without bound", field: "/sku", disturb: setting("maxmemory-clients", "0") },
    ...limitDrifts<CacheWorld>((world, uid) =>
      Number.parseInt(fs.readFileSync(path.join(folderOf(world, { uid }), "redis.pid"), "utf8"), 10)
    ),
    {
      name: "another policy",
      field: "/evictionPolicy",
      disturb: setting("maxmemory-policy", "volatile-lru")
    },
    { name: "persistence turned off", field: "/persistence", disturb: setting("appendonly", "no") },
    { name: "fsync turned off", field: "/persistence", disturb: setting("appendfsync", "no") },
    { name: "snapshots turned on", field: "/persistence", disturb: setting("save", "60 1") },
    {
      name: "the append-only file was deleted",
      field: "/persistence",
      disturb: onDisk((folder) => fs.rmSync(path.join(folder, "appendonlydir"), { recursive: true }))
    },
    {
      name: "another password",
      field: "/credentialVersion",
      disturb: user("svc", "on", digest("x"), "~*", "&*", "+@all")
    },
    {
      name: "one more password",
      field: "/credentialVersion",
      disturb: (world, resource) => appUser("~*", "&*", "+@all", digest("backdoor"))(world, resource)
    },
    { name: "more rights", field: "/access", disturb: appUser("~*", "&*", "+@all") },
    {
      name: "fewer keys",
      field: "/access",
      disturb: appUser("~mine:*", "&*", "+@all", "-@admin", "-@dangerous")
    },
    { name: "the user is turned off", field: "/access", disturb: user("svc", "off") },
    { name: "one more user", field: "/access", disturb: user("intruder", "on", digest("x"), "~*", "+@all") },
    {
      name: "the default user is back",
      field: "/access",
      disturb: user("default", "on", "nopass", "~*", "+@all")
    },
    {
      name: "a port without TLS",
      field: "/endpoint",
      disturb: (world, resource) =>
        Effect.flatMap(Effect.promise(freePort), (port) => setting("port", String(port))(world, resource))
    },
    {
      name: "another TLS port",
      field: "/endpoint",
      disturb: (world, resource) =>
        Effect.flatMap(Effect.promise(freePort), (port) => setting("tls-port", String(port))(world, resource))
    },
    {
      name: "the certificate is gone",
      field: "/certificate",
      disturb: onDisk((folder) => fs.rmSync(certificateIn(folder)))
    },
    {
      name: "the certificate ends in 20 days",
      field: "/certificate",
      disturb: (world, resource) => replacedCertificate(world, resource, names, 70)
    },
    {
      // As it was made before containers of environments reached servers.
      name: "the certificate does not name the host that containers know",
      field: "/certificate",
      disturb: (world, resource) => replacedCertificate(world, resource, ["127.0.0.1", "localhost"], 0)
    },
    {
      name: "the certificate names another host",
      field: "/certificate",
      disturb: (world, resource) => replacedCertificate(world, resource, ["elsewhere.example.test"], 0)
    },
    {
      name: "the certificate of another authority",
      field: "/certificate",
      disturb: (world, resource) =>
        replacedCertificate({ ...world, secrets: memorySecrets() }, resource, names, 0)
    },
    {
      name: "the configuration file was edited",
      field: "/files/config",
      disturb: onDisk((folder) => fs.appendFileSync(path.join(folder, "redis.conf"), "appendonly no\n"))
    },
    {
      name: "the users file is gone",
      field: "/files/users",
      disturb: onDisk((folder) => fs.rmSync(path.join(folder, "users.acl")))
    },
    {
      name: "the control file is damaged",
      field: "/files/config",
      disturb: onDisk((folder) => fs.writeFileSync(path.join(folder, "server.json"), "{"))
    },
    {
      name: "the whole folder is gone",
      field: "/files/config",
      disturb: onDisk((folder) => fs.rmSync(folder, { recursive: true }))
    },
    {
      name: "nothing is left",
      field: "absent",
      disturb: (world, resource) =>
        Effect.andThen(
          killed(world, resource),
          Effect.sync(() => {
            fs.rmSync(folderOf(world, resource), { recursive: true })
            fs.rmSync(socketOf(world, resource.uid), { force: true })
          })
        )
    }
  ],
  timeoutMs: 600_000,
  costly: true
}

reconcilerSuite(subject)

campaign(
  it.live,
  "cache-crashes",
  "control planes that die again and again while a cache is made, changed and removed end where one would have",
  {},
  crashes(subject)
)

reconcilerSuite<CacheWorld, CacheSpec, unknown>({
  name: "a cache without persistence",
  kind: "Cache",
  world: cacheWorld,
  layer: cacheReconciler,
  makeResource: (world) => Effect.sync(() => makeCache(world, { persistence: "none" })),
  snapshot: cacheSnapshot,
  remains: cacheRemains,
  changes: [
    {
      name: "persistence",
      apply: (_, resource) => Effect.succeed(changed(resource, { persistence: "aof" }))
    }
  ],
  drifts: [
    { name: "persistence turned on", field: "/persistence", disturb: setting("appendonly", "yes") },
    {
      name: "an append-only file is left over",
      field: "/persistence",
      disturb: onDisk((folder) => fs.mkdirSync(path.join(folder, "appendonlydir")))
    }
  ],
  timeoutMs: 600_000,
  costly: true,
  changesAlone: true
})

const killed = (world: CacheWorld, resource: CacheResource) =>
  Effect.gen(function* () {
    const marker = folderOf(world, resource)
    killNaming(marker)
    yield* eventually(
      "the server has ended",
      Effect.sync(() => processesNaming(marker).length === 0)
    )
  })

/** Puts a certificate in the place of the server's own that was issued `age` days ago. */
const replacedCertificate = (
  world: CacheWorld,
  resource: CacheResource,
  hosts: readonly [string, ...ReadonlyArray<string>],
  age: number
) =>
  Effect.gen(function* () {
    const issued = yield* Effect.gen(function* () {
      yield* TestClock.setTime(Date.now() - age * day)
      return yield* (yield* CertificateAuthority).issue({ hosts })
    }).pipe(Effect.provide(TestClock.layer()))
    fs.writeFileSync(
      certificateIn(folderOf(world, resource)),
      issued.certificatePem + Redacted.value(issued.privateKeyPem)
    )
  }).pipe(Effect.provide(cacheServices(world), { local: true }))
