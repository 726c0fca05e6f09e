/** Maintenance from the command line. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { ago, dayMs, makeProject, place } from "#test/maintenance/world.ts"
import { Operator, signedIn } from "./control-plane.ts"

layer(signedIn(), { excludeTestServices: true, timeout: "3 minutes" })("maintenance", (it) => {
  it.effect("is set up, run, read, dismissed and ended", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const shop = yield* makeProject("shop")
      yield* place(shop, {
        ...{ kind: "Queue", name: "jobs", phase: "failed" },
        conditions: [
          {
            ...{ type: "Stalled", status: "true", reason: "NoProgress" },
            ...{ message: "Several tries in a row changed nothing", since: ago(dayMs) }
          }
        ]
      })
      const run = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
        const ran = yield* svc(["maintenance", ...args])
        assert.strictEqual(ran.code, 0, `${args.join(" ")}: ${ran.stderr}`)
        return ran
      })
      assert.match((yield* run("get", "shop")).stderr, /Nobody looks after this project/)
      const set = yield* run(
        "set",
        "shop",
        "--category",
        "drift",
        "--category",
        "security",
        "--schedule",
        "weekly"
      )
      assert.match(set.stdout, /Runs +weekly\n/)
      assert.match(set.stdout, /Categories +drift, security\n/)
      assert.match(set.stdout, /By itself +nothing\n/)
      const refused = yield* svc(["maintenance", "set", "shop", "--allow", "database.delete"])
      assert.strictEqual(refused.code, 2)
      const allowed = yield* run(
        ...["set", "shop", "--auto", "--maximum-risk", "write", "--allow", "resources.retry"],
        ...["--max-actions", "3"]
      )
      assert.match(allowed.stdout, /By itself +resources.retry \(risk: write; 3 a run\)/)
      // What was not named stayed as it was.
      assert.match(allowed.stdout, /Runs +weekly\n/)

      const ran = yield* run("run", "shop")
      assert.match(ran.stdout, /State +succeeded/)
      assert.match(ran.stdout, /succeeded: +svc retry shop\/production\/Queue\/jobs/)
      assert.match((yield* run("runs", "shop")).stdout, /manual +succeeded/)
      const [latest] = JSON.parse((yield* run("runs", "shop", "--json")).stdout)
      assert.include((yield* run("show-run", "shop", latest.id)).stdout, latest.id)

      const listed = yield* run("findings", "shop", "--category", "drift")
      assert.match(listed.stdout, /critical +drift +shop\/production\/Queue\/jobs is stuck/)
      assert.include(listed.stdout, "svc retry shop/production/Queue/jobs")
      const [found] = JSON.parse((yield* run("findings", "shop", "--category", "drift", "--json")).stdout)
      yield* run("dismiss", "shop", found.id, "--reason", "known")
      assert.match((yield* run("findings", "shop", "--state", "dismissed")).stdout, /dismissed: known/)
      yield* run("reopen", "shop", found.id)
      assert.include((yield* run("findings", "shop")).stdout, found.id)

      // The command that a finding names is one.
      const [, ...words] = String(found.remedy.command).split(" ")
      const retried = yield* svc([...words, "--no-wait"])
      assert.strictEqual(retried.code, 0, retried.stderr)

      yield* run("unset", "shop", "--yes")
      assert.match((yield* run("get", "shop")).stderr, /Nobody looks after this project/)
    })
  )
})
