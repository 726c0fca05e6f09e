/** Organizations, people, keys and billing from the command line. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { enrol, person } from "#test/setup/people.ts"
import { Operator, signedIn } from "./control-plane.ts"

layer(signedIn({ billing: "required" }), { excludeTestServices: true, timeout: "3 minutes" })(
  "people",
  (it) => {
    it.effect("an organization is made, renamed, paid for on the server, and deleted by name", () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const { databaseUrl, dataDir, sql } = yield* Plane
        const server = { env: { SVC_DATABASE_URL: databaseUrl, SVC_DATA_DIR: dataDir } }
        const made = yield* svc(["orgs", "create", "acme", "--name", "Acme", "--json"])
        assert.strictEqual(made.code, 0, made.stderr)
        assert.deepInclude(JSON.parse(made.stdout), { slug: "acme", name: "Acme", billingStatus: "unpaid" })
        // It can be used at once: the stored key is another organization's, the session is its owner's.
        const [looked, keyed, api] = yield* Effect.all(
          [
            svc(["status", "--org", "acme"]),
            svc(["keys", "create", "ci", "--org", "acme"]),
            svc(["api", "GET", "/v1/orgs/{org}/projects", "--org", "acme"])
          ],
          { concurrency: 3 }
        )
        assert.deepStrictEqual([looked.code, keyed.code, api.code], [0, 0, 0], looked.stderr + keyed.stderr)
        assert.strictEqual(api.stdout, "[]\n")
        const again = yield* svc(["orgs", "create", "acme"])
        assert.deepStrictEqual([again.code, again.stdout], [6, ""])
        assert.include(again.stderr, "taken")

        const billing = (status: string, ...more: ReadonlyArray<string>) =>
          svc(["admin", "billing", "acme", status, ...more], server)
        const refused = yield* billing("canceled")
        assert.deepStrictEqual([refused.code, refused.stdout], [6, ""])
        assert.include(refused.stderr, "unpaid")
        const active = yield* billing("active", "--json")
        assert.deepStrictEqual(JSON.parse(active.stdout), {
          organization: "acme",
          from: "unpaid",
          billingStatus: "active"
        })
        const [forced, unknown, wrong] = yield* Effect.all(
          [
            billing("canceled", "--force"),
            svc(["admin", "billing", "nope", "active"], server),
            billing("paid")
          ],
          { concurrency: 3 }
        )
        assert.deepStrictEqual([forced.code, unknown.code, wrong.code], [0, 5, 2], forced.stderr)
        const audited = yield* sql(
          `select principal, outcome from audit_log where operation = 'admin.billing'`
        )
        assert.deepStrictEqual(audited, [
          { principal: "operator", outcome: 200 },
          { principal: "operator", outcome: 200 }
        ])

        const [renamed, nothing] = yield* Effect.all(
          [svc(["orgs", "update", "--org", "acme", "--slug", "acme-inc"]), svc(["orgs", "update"])],
          { concurrency: 2 }
        )
        assert.deepStrictEqual([renamed.code, nothing.code], [0, 2], renamed.stderr)
        const [mine, all] = yield* Effect.all(
          [svc(["orgs", "ls", "--json"]), svc(["admin", "orgs"], server)],
          { concurrency: 2 }
        )
        assert.deepStrictEqual(
          JSON.parse(mine.stdout).map(({ slug }: { slug: string }) => slug),
          ["acme-inc", "main"]
        )
        assert.match(all.stdout, /^acme-inc +canceled +1 +0 +Acme$/m)

        const unsure = yield* svc(["orgs", "delete", "--org", "acme-inc"])
        assert.deepStrictEqual([unsure.code, unsure.stdout], [2, ""])
        const [gone, kept] = yield* Effect.all(
          [svc(["orgs", "delete", "--org", "acme-inc", "--yes"]), svc(["orgs", "delete", "--yes"])],
          { concurrency: 2 }
        )
        assert.deepStrictEqual([gone.code, kept.code], [0, 1], gone.stderr)
        assert.include(kept.stderr, "personal")
      })
    )

    it.effect("people are invited, get roles, and are taken out; a lone command never asks", () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const { sql } = yield* Plane
        const [main] = yield* sql(`select id from organization where slug = 'main'`)
        const guest = yield* person("guest@example.test")
        yield* enrol(String(main?.["id"]), guest.userId, "member")
        const [invited, listed, members, odd] = yield* Effect.all([
          svc(["invitations", "create", "New@Example.test", "--role", "admin", "--json"]),
          svc(["invitations", "ls", "--json"]),
          svc(["members", "ls"]),
          svc(["invitations", "create", "nobody"])
        ])
        assert.strictEqual(invited.code, 0, invited.stderr)
        assert.deepInclude(JSON.parse(invited.stdout), { email: "new@example.test", role: "admin" })
        assert.deepStrictEqual(JSON.parse(listed.stdout), [JSON.parse(invited.stdout)])
        assert.match(members.stdout, /^guest@example\.test +member/m)
        assert.deepStrictEqual([odd.code, odd.stdout], [2, ""])
        assert.match(odd.stderr, /^Not valid: .*e-mail address/)

        const changed = yield* svc(["members", "set-role", "guest@example.test", "admin"])
        assert.strictEqual(changed.code, 0, changed.stderr)
        const [revoked, unsure, unknown] = yield* Effect.all(
          [
            svc(["invitations", "revoke", "new@example.test", "--yes"]),
            svc(["members", "rm", "guest@example.test"]),
            svc(["members", "rm", "nobody@example.test", "--yes"])
          ],
          { concurrency: 3 }
        )
        assert.deepStrictEqual([revoked.code, unsure.code, unknown.code], [0, 2, 5], revoked.stderr)
        const removed = yield* svc(["members", "rm", "guest@example.test", "--yes"])
        assert.strictEqual(removed.code, 0, removed.stderr)
        assert.notInclude((yield* svc(["members", "ls"])).stdout, "guest")
      })
    )

    it.effect("a key is printed alone, works, and is revoked by its name; the log tells of it", () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const { url } = yield* Plane
        const made = yield* svc(["keys", "create", "ci", "--role", "member"])
        assert.strictEqual(made.code, 0, made.stderr)
        assert.match(made.stdout, /^svc_[0-9a-f]{40}\n$/)
        const key = made.stdout.trim()
        const ci = { env: { SVC_TOKEN: key, SVC_API_URL: url, SVC_ORG: "main" } }
        const [whoami, own, listed] = yield* Effect.all(
          [svc(["whoami", "--json"], ci), svc(["keys", "ls"], ci), svc(["keys", "ls"])],
          { concurrency: 3 }
        )
        const { organizations, keyName, user } = JSON.parse(whoami.stdout)
        assert.deepStrictEqual(
          [organizations[0].role, keyName, user.email],
          ["member", "ci", "operator@localhost"]
        )
        assert.deepStrictEqual([own.code, own.stdout], [1, ""])
        assert.match(listed.stdout, new RegExp(`^${key.slice(0, 8)}\\.\\.\\. +ci +member`, "m"))
        assert.notInclude(listed.stdout, key)
        const revoked = yield* svc(["keys", "revoke", "ci", "--yes"])
        assert.strictEqual(revoked.code, 0, revoked.stderr)
        const [dead, missing, grants, log] = yield* Effect.all(
          [
            svc(["whoami"], ci),
            svc(["keys", "revoke", "ci", "--yes"]),
            svc(["grants", "ls", "--json"]),
            svc(["audit", "--operation", "apikeys.revoke", "--json"])
          ],
          { concurrency: 4 }
        )
        assert.deepStrictEqual([dead.code, missing.code, grants.stdout.trim()], [4, 5, "[]"])
        assert.deepInclude(JSON.parse(log.stdout)[0], { operation: "apikeys.revoke", outcome: 200 })
      })
    )
  }
)
