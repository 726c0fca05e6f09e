/** The state store goes away and comes back while people write and the engine reconciles. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { makePlane, type Plane, planesWorld } from "./planes.ts"

type Answer = { readonly status: number; readonly body: unknown } | "none"

interface Attempt {
  readonly slug: string
  /** Set when it was about variables of the project instead of the project itself. */
  readonly pair?: number
  readonly answer: Answer
}

const call = (plane: Plane, method: string, target: string, body: unknown): Promise<Answer> =>
  plane.call(method, target, body, 15_000).catch(() => "none" as const)
const succeeded = ({ answer }: Attempt) => answer !== "none" && answer.status < 300

/** Makes projects and sets variables in pairs, one request after another, through one control plane after the other. */
const write = async (
  name: string,
  planes: ReadonlyArray<Plane>,
  attempts: Array<Attempt>,
  on: () => boolean
) => {
  let home: string | undefined
  for (let i = 0; on(); i++) {
    const plane = planes[i % planes.length]!
    if (home === undefined || i % 3 === 0) {
      const slug = `${name}-${i}`
      const answer = await call(plane, "POST", "/v1/orgs/main/projects", { name: slug, slug })
      attempts.push({ slug, answer })
      if (answer !== "none" && answer.status < 300) home = slug
    } else {
      const vars = ["A", "B"].map((letter) => ({ key: `${letter}_${i}`, value: String(i) }))
      const answer = await call(plane, "PUT", `/v1/orgs/main/projects/${home}/env`, { vars })
      attempts.push({ slug: home, pair: i, answer })
    }
    await sleep(20)
  }
}

const ways = ["fast", "immediate", "kill"] as const

campaign(
  it.live,
  "store-restarts",
  "a state store that is restarted under load, politely or not, loses nothing that was answered",
  { roundMs: 900_000, rounds: 0 },
  Effect.fnUntraced(function* ({ seed }) {
    const random = new Seeded(seed)
    const restarts = Array.from({ length: random.int(2, 8) }, () => random.pick(ways) ?? "kill")
    const { base, store, planes } = yield* planesWorld
    yield* Effect.promise(async () => {
      for (const _ of [1, 2]) {
        const plane = await makePlane(base, store.url)
        planes.push(plane)
        await plane.start()
      }
      const attempts: Array<Attempt> = []
      let on = true
      const writers = ["a", "b", "c", "d"].map((name) => write(name, planes, attempts, () => on))
      const goesOn = () => {
        const before = attempts.filter(succeeded).length
        return until("writes succeed", () => attempts.filter(succeeded).length > before + 40)
      }
      await goesOn()
      const began = new Date()
      for (const how of restarts) {
        await store.restart(how)
        await goesOn()
      }
      on = false
      await Promise.all(writers)
      const failed = attempts.filter((attempt) => !succeeded(attempt))
      for (const { answer } of failed)
        assert.isTrue(answer === "none" || answer.status === 503, JSON.stringify(answer))

      const sql = postgres(store.url, { max: 1, onnotice: () => {} })
      try {
        // Nobody need have noticed: what fails for a moment is tried again.
        const [server] = await sql`select pg_postmaster_start_time() > ${began} as restarted`
        assert.isTrue(server?.["restarted"])
        await until("everything is ready", async () => {
          const [row] = await sql`
              select count(*)::int as late from resource r join work w on w.org_id = r.org_id and w.uid = r.uid
              where r.deleted_at is null and (r.phase <> 'ready' or r.observed_generation <> r.generation
                or w.lease_until < now())`
          return row?.["late"] === 0
        })
        const projects = await sql`
            select p.name, count(e.uid)::int as environments from resource p
            left join resource e on e.org_id = p.org_id and e.parent_uid = p.uid and e.kind = 'Environment'
            where p.kind = 'Project' group by p.name`
        const environments = new Map(
          projects.map((row) => [String(row["name"]), Number(row["environments"])])
        )
        const variables = await sql`
            select p.name, k.key, s.field is not null as sealed from resource v
            join resource p on p.org_id = v.org_id and p.uid = v.project_id
            cross join lateral jsonb_object_keys(v.spec -> 'variables') as k(key)
            left join secret s on s.org_id = v.org_id and s.uid = v.uid and s.field like '%' || k.key
            where v.kind = 'EnvVariables'`
        const keys = new Set(variables.map((row) => `${row["name"]} ${row["key"]}`))
        assert.isTrue(
          variables.every((row) => row["sealed"] === true),
          "a key without its value"
        )
        for (const attempt of attempts) {
          const { slug, pair } = attempt
          const there =
            pair === undefined
              ? [environments.get(slug)]
              : ["A", "B"].map((letter) => (keys.has(`${slug} ${letter}_${pair}`) ? 2 : undefined))
          // Wholly: a project has its two environments, and both variables of a pair are set.
          const whole = there.every((count) => count === 2)
          const absent = there.every((count) => count === undefined)
          assert.isTrue(whole || absent, `${slug} ${pair ?? ""} is half there: ${there}`)
          if (succeeded(attempt)) assert.isTrue(whole, `${slug} ${pair ?? ""} is lost`)
        }
      } finally {
        await sql.end()
      }
      for (const plane of planes) assert.isTrue(plane.alive(), plane.log())
    })
  })
)
