/** Custom domains from the command line. The edge stands in for a real one, and nothing is known to DNS but what is told. */
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Plane } from "#test/setup/control-plane.ts"
import { type NameServer, nameServer } from "#test/setup/dns.ts"
import { answeringNode } from "#test/setup/edge-node.ts"
import { eventually } from "#test/setup/wait.ts"
import { Operator, signedIn } from "./control-plane.ts"

class Dns extends Context.Service<Dns, NameServer>()("test/NameServer") {}
const world = Layer.unwrap(
  Effect.map(nameServer, (server) =>
    Layer.merge(
      signedIn({}, { SVC_DNS_SERVERS: server.address, SVC_APPS_DOMAIN: "apps.test" }),
      Layer.succeed(Dns, server)
    )
  )
)

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("domains", (it) => {
  it.effect("are added, followed, changed and removed, and each answer names the next step", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const { databaseUrl } = yield* Plane
      const { zone } = yield* Dns
      const made = yield* svc(["projects", "create", "shop"])
      assert.strictEqual(made.code, 0, made.stderr)
      const without = yield* svc(["domains", "add", "shop", "www.example.com"])
      assert.strictEqual(without.code === 0, false)
      assert.match(without.stderr, /No edge is at work/)
      yield* answeringNode(databaseUrl)
      const none = yield* svc(["domains", "ls", "shop"])
      assert.match(none.stderr, /svc domains add shop HOSTNAME/)

      const added = yield* svc(["domains", "add", "shop", "www.example.com"])
      assert.strictEqual(added.code, 0, added.stderr)
      assert.match(added.stdout, /^www\.example\.com is pending_dns\n/)
      const [, target = ""] =
        /Create the DNS record www\.example\.com CNAME (\S+\.apps\.test)\./.exec(added.stdout) ?? []
      assert.isNotEmpty(target)
      assert.match(added.stderr, /svc domains check shop www\.example\.com/)
      const unicode = yield* svc(["domains", "add", "shop", "bücher.example"])
      assert.deepStrictEqual(
        [unicode.code, /xn--bcher-kva\.example/.test(unicode.stderr)],
        [2, true],
        unicode.stderr
      )
      assert.strictEqual((yield* svc(["domains", "add", "shop", "www.example.com"])).code, 6)

      const waited = yield* eventually(
        "its records were looked up",
        svc(["domains", "check", "shop", "www.example.com", "--wait", "--timeout", "1"]),
        ({ stderr }) => stderr.includes("not in DNS yet")
      )
      assert.strictEqual(waited.code, 7, waited.stderr)
      zone.set("www.example.com", { cname: target })
      const checked = yield* svc(["domains", "check", "shop", "www.example.com", "--json"])
      assert.deepInclude(JSON.parse(checked.stdout), { hostname: "www.example.com", status: "pending_ssl" })
      const shown = yield* svc(["domains", "show", "shop", "www.example.com"])
      assert.match(shown.stdout, /Next +Nothing: its certificate is on its way/)

      const international = yield* svc([
        "domains",
        "add",
        "shop",
        "xn--bcher-kva.example",
        "--redirect-to",
        "www.example.com"
      ])
      assert.strictEqual(international.code, 0, international.stderr)
      const changed = yield* svc([
        "domains",
        "update",
        "shop",
        "bücher.example",
        "--redirect-to",
        "none",
        "--hsts",
        "60",
        "--json"
      ])
      assert.deepInclude(JSON.parse(changed.stdout), {
        displayName: "bücher.example",
        redirectTo: null,
        hstsSeconds: 60
      })
      const listed = yield* svc(["domains", "ls", "shop"])
      assert.match(listed.stdout, /xn--bcher-kva\.example +production +pending_dns/)
      assert.strictEqual((yield* svc(["domains", "rm", "shop", "www.example.com"])).code, 2)
      const gone = yield* svc(["domains", "rm", "shop", "www.example.com", "--yes"])
      assert.strictEqual(gone.code, 0, gone.stderr)
      assert.strictEqual((yield* svc(["domains", "show", "shop", "www.example.com"])).code, 5)
    }).pipe(Effect.scoped)
  )
})
