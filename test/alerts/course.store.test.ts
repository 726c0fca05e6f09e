/** What becomes of one alert as time passes: round by round what was measured or done, and what it is and tells then. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { actor } from "#test/setup/fixtures.ts"
import { full, place, round, specOf, stack } from "./world.ts"

const resources = {
  main: ["Database", "production"],
  sessions: ["Cache", "production"],
  preview: ["Cache", "preview"],
  import: ["Execution", "production"]
} as const
type Name = keyof typeof resources

const setting = Effect.fnUntraced(function* (values: object) {
  const here = yield* place
  const alert = yield* here.alert(values)
  const uids = new Map<string, Name>()
  const uidOf = Effect.fnUntraced(function* (name: Name) {
    for (const [uid, known] of uids) if (known === name) return uid
    const [kind, environment] = resources[name]
    const uid = yield* here.resource(kind, name, environment)
    uids.set(uid, name)
    return uid
  })
  return { here, alert, ref: { orgId: here.orgId, uid: alert }, uidOf, nameOf: (uid = "") => uids.get(uid) }
})
type Setting = Effect.Success<ReturnType<typeof setting>>
type Act = (setting: Setting) => Effect.Effect<unknown, unknown>

const nothing: Act = () => Effect.void
/** What is measured of resources, now or so many seconds ago. */
const see =
  (values: Partial<Record<Name, number>>, age = 0, signal = "storage.capacity"): Act =>
  ({ here, uidOf }) =>
    Effect.forEach(Object.keys(resources) as ReadonlyArray<Name>, (name) => {
      const value = values[name]
      if (value === undefined) return Effect.void
      return Effect.flatMap(uidOf(name), (uid) => here.measure(uid, { [signal]: value }, age))
    })
const cpu = (values: Partial<Record<Name, number>>, age = 0) => see(values, age, "cpu.percent")
/** Something done to one of the resources. */
const to =
  (name: Name, act: (here: Setting["here"], uid: string) => Effect.Effect<unknown, unknown>): Act =>
  ({ here, uidOf }) =>
    Effect.flatMap(uidOf(name), (uid) => act(here, uid))
const silence =
  (seconds: number, reason: string | null = null): Act =>
  ({ here, ref }) =>
    here.alerts.silence(ref, { seconds, reason }, actor)
const acknowledge =
  (expected: boolean): Act =>
  ({ here, ref }) =>
    Effect.map(here.alerts.acknowledge(ref, actor), (done) => assert.strictEqual(done, expected))
const put =
  (values: object): Act =>
  ({ here, alert }) =>
    here.put(alert, specOf(values))
/** It was told so many seconds ago. */
const toldAgo =
  (seconds: number): Act =>
  ({ here, alert }) =>
    here.sql`update alert set last_told_at = now() - make_interval(secs => ${seconds}::float8) where uid = ${alert}`
const all =
  (...acts: ReadonlyArray<Act>): Act =>
  (setting) =>
    Effect.forEach(acts, (act) => act(setting))

/**
 * What happens, how many seconds after the round before the next one comes, what the alert is then (with the resource that
 * it fires about), and what webhooks are told by it.
 */
type Step = readonly [
  act: Act,
  seconds: number,
  state: string,
  ...told: ReadonlyArray<"alert.firing" | "alert.resolved">
]

interface Course {
  readonly says: string
  /** Beside those of an alert about 85 % of storage that fires at once. */
  readonly alert?: object
  readonly steps: ReadonlyArray<Step>
  /** Its history in the end, with reasons. */
  readonly changes?: ReadonlyArray<string>
}

const lasting = (durationSeconds: number) => ({ condition: { signal: "storage.capacity", durationSeconds } })
const busy = { condition: { signal: "cpu.percent", threshold: 90, durationSeconds: 0 } }
const fires: Step = [see({ main: 90 }), 15, "firing main", "alert.firing"]

const courses: ReadonlyArray<Course> = [
  {
    says: "fires once its condition has held for long enough, and tells of it once",
    alert: lasting(30),
    steps: [
      [see({ main: 85 }), 15, "pending"],
      [nothing, 15, "pending"],
      [nothing, 15, "firing main", "alert.firing"],
      [nothing, 15, "firing main"]
    ],
    changes: ["firing"]
  },
  {
    says: "fires nothing when its condition ends in time, and counts from the start the next time",
    alert: lasting(30),
    steps: [
      [see({ main: 90 }), 20, "pending"],
      [nothing, 20, "pending"],
      [see({ main: 80 }), 20, "ok"],
      [see({ main: 90 }), 20, "pending"],
      [nothing, 20, "pending"]
    ],
    changes: []
  },
  {
    says: "resolves when its condition has not held for a minute, and tells of that once",
    steps: [
      fires,
      [see({ main: 50 }), 15, "firing main"],
      [nothing, 30, "firing main"],
      [nothing, 29, "firing main"],
      [nothing, 1, "ok", "alert.resolved"],
      [nothing, 15, "ok"]
    ],
    changes: ["firing", "resolved: cleared"]
  },
  {
    says: "stays one incident while it comes and goes, and tells of the next one after the cooldown",
    alert: { cooldownSeconds: 600 },
    steps: [
      [see({ main: 90 }), 45, "firing main", "alert.firing"],
      [see({ main: 10 }), 45, "firing main"],
      [see({ main: 90 }), 45, "firing main"],
      [see({ main: 10 }), 45, "firing main"],
      [nothing, 60, "ok", "alert.resolved"],
      [see({ main: 90 }), 60, "firing main"],
      [toldAgo(598), 15, "firing main"],
      [toldAgo(601), 15, "firing main", "alert.firing"]
    ],
    changes: ["firing", "resolved: cleared", "firing", "notified"]
  },
  {
    says: "tells of no end of what it never told of",
    steps: [
      [all(silence(600), see({ main: 90 })), 15, "firing main"],
      [see({ main: 9 }), 15, "firing main"],
      [nothing, 60, "ok"]
    ],
    changes: ["silenced", "firing", "resolved: cleared"]
  },
  {
    says: "says that it has no data while it does not fire, and goes on when there is some",
    steps: [
      [nothing, 15, "no_data"],
      [cpu({ main: 99 }), 15, "no_data"],
      [see({ main: 1 }, 80), 15, "ok"],
      [see({ main: 99 }, 91), 15, "no_data"],
      [see({ main: 1 }), 15, "ok"]
    ],
    // That nothing was measured before the first value is no loss.
    changes: ["no_data", "data_back"]
  },
  {
    says: "needs no data when it is off",
    alert: { enabled: false },
    steps: [[nothing, 15, "ok"]],
    changes: []
  },
  {
    says: "goes on firing until what it is about is measured again",
    steps: [
      [see({ main: 90, sessions: 1 }), 15, "firing main", "alert.firing"],
      [see({ main: 90 }, 3_600), 60, "firing main"],
      [nothing, 60, "firing main"],
      // The whole table is lost in a crash of the server, and the other resource is measured first.
      [to("main", ({ sql }, uid) => sql`delete from metric_now where uid = ${uid}`), 60, "firing main"],
      [nothing, 60, "firing main"],
      [see({ main: 10 }), 60, "firing main"],
      [nothing, 60, "ok", "alert.resolved"]
    ],
    changes: ["firing", "data_lost", "data_back", "resolved: cleared"]
  },
  {
    says: "is kept firing by an old value of nothing but what it fired about",
    alert: busy,
    steps: [
      // It ended at that, and nobody measures it again.
      [all(cpu({ import: 97 }, 300), cpu({ main: 95 })), 15, "firing main", "alert.firing"],
      [cpu({ main: 1 }), 60, "firing main"],
      [nothing, 60, "ok", "alert.resolved"]
    ]
  },
  {
    says: "goes on being about what is lost, whatever else the condition holds for meanwhile",
    steps: [
      fires,
      [all(see({ main: 90 }, 600), see({ sessions: 99 })), 15, "firing main"],
      [see({ sessions: 1 }), 60, "firing main"],
      [nothing, 60, "firing main"],
      [nothing, 60, "firing main"]
    ]
  },
  {
    says: "resolves, and says why, when the execution ends that it fired about",
    alert: busy,
    steps: [
      [cpu({ import: 97 }), 15, "firing import", "alert.firing"],
      [
        ({ here, uidOf }) =>
          Effect.flatMap(
            uidOf("import"),
            (uid) =>
              here.sql`update resource set status = '{"finishedAt": "2026-01-01T00:00:00Z"}' where uid = ${uid}`
          ),
        60,
        "firing import"
      ],
      [nothing, 60, "no_data", "alert.resolved"]
    ],
    changes: ["firing", "resolved: resource_gone", "no_data"]
  },
  {
    says: "resolves, and says why, when the resource is deleted that it fired about",
    steps: [
      fires,
      [
        to("main", ({ resources, orgId }, uid) => resources.write(orgId, [{ action: "delete", uid }], actor)),
        60,
        "firing main"
      ],
      [nothing, 60, "no_data", "alert.resolved"]
    ],
    changes: ["firing", "resolved: resource_gone", "no_data"]
  },
  {
    says: "counts a jump of the clock, or a long pause of all evaluators, as no more than a minute",
    alert: lasting(90),
    steps: [
      [see({ main: 90 }), 15, "pending"],
      [nothing, 86_400, "pending"],
      [nothing, 30, "firing main", "alert.firing"]
    ]
  },
  {
    says: "counts a jump back of the clock as nothing, and keeps quiet for no time that is to come",
    alert: { ...lasting(30), cooldownSeconds: 600 },
    steps: [
      [see({ main: 90 }), 15, "pending"],
      [nothing, 15, "pending"],
      [toldAgo(-3_600), -3_600, "pending"],
      [nothing, 15, "firing main", "alert.firing"]
    ]
  },
  {
    says: "resolves at once when it is switched off while it fires",
    steps: [fires, [put({ enabled: false }), 15, "ok", "alert.resolved"]],
    changes: ["firing", "resolved: disabled"]
  },
  {
    says: "is not held by what it was about once it is about something else",
    steps: [
      [see({ main: 90, preview: 10 }), 15, "firing main", "alert.firing"],
      [put({ ...full, scope: { environment: "preview" } }), 60, "firing main"],
      [nothing, 60, "ok", "alert.resolved"]
    ]
  },
  {
    says: "keeps quiet in a silence, which is remembered, and tells of what still fires at its end",
    steps: [
      [all(silence(600, "works"), see({ main: 90 })), 15, "firing main"],
      [
        ({ here, alert }) =>
          Effect.map(here.standing(alert), ({ silence }) =>
            assert.deepInclude(silence, { by: "system", reason: "works" })
          ),
        15,
        "firing main"
      ],
      [
        ({ here, alert }) => here.sql`update alert set silenced_until = now() where uid = ${alert}`,
        15,
        "firing main",
        "alert.firing"
      ],
      [
        ({ here, alert }) => Effect.map(here.standing(alert), ({ silence }) => assert.isNull(silence)),
        15,
        "firing main"
      ]
    ],
    changes: ["silenced: works", "firing", "silence_ended", "notified"]
  },
  {
    says: "tells at once when a silence is taken back",
    steps: [
      [all(silence(600), see({ main: 90 })), 15, "firing main"],
      [silence(0), 15, "firing main", "alert.firing"]
    ]
  },
  {
    says: "tells nobody of what somebody has acknowledged, until the next incident",
    alert: { cooldownSeconds: 600 },
    steps: [
      [all(acknowledge(false), toldAgo(0), see({ main: 90 })), 15, "firing main"],
      [all(acknowledge(true), toldAgo(3_600)), 15, "firing main"],
      [see({ main: 1 }), 15, "firing main"],
      [nothing, 60, "ok"],
      [see({ main: 90 }), 15, "firing main", "alert.firing"]
    ]
  }
]

layer(stack, { excludeTestServices: true })("an alert", (it) => {
  for (const { says, alert = {}, steps, changes } of courses)
    it.effect(says, () =>
      Effect.gen(function* () {
        const all = yield* setting(alert)
        const { here, nameOf } = all
        const seen: Array<ReadonlyArray<string>> = []
        let told = 0
        for (const [act, seconds] of steps) {
          yield* act(all)
          assert.isAbove((yield* round(seconds)).rounds, 0)
          const { state, incident, measured } = yield* here.standing(all.alert)
          if (state === "no_data") assert.isNull(measured)
          const news = (yield* here.told).slice(told)
          told += news.length
          seen.push([state === "firing" ? `firing ${nameOf(incident?.resource?.id)}` : state, ...news])
        }
        assert.deepStrictEqual(
          seen,
          steps.map(([, , ...expected]) => expected)
        )
        if (changes === undefined) return
        assert.sameMembers(
          (yield* here.history(all.alert)).map(({ change, reason }) =>
            reason === null ? change : `${change}: ${reason}`
          ),
          [...changes]
        )
      })
    )
})
