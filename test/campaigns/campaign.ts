/**
 * Campaigns: tests whose rounds are made from a seed, so that there are always more of them to play.
 *
 * A campaign is declared once, where its test stands. `npm test` plays its first rounds, with the seeds 1, 2, 3...
 * `npm run test:faults` finds the declarations by their text, and plays rounds with other seeds until its time is over.
 *
 * A seed determines what the test chooses: moments, sizes, orders, whom it kills. Where real processes run beside each
 * other, it does not determine what they make of it.
 */
import type { Vitest } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"

/**
 * What a run of campaigns asks for: the seed of the first round (the next one has the next number), and for how long
 * rounds begin. With no minutes there is one. It comes to the test processes in `SVC_CAMPAIGN`.
 */
export const CampaignRun = Schema.fromJsonString(
  Schema.Struct({ name: Schema.String, seed: Schema.Int, minutes: Schema.Finite })
)
export type CampaignRun = typeof CampaignRun.Type

export interface Round {
  readonly seed: number
  /** Off in `npm test`, where a round is as small as it can be while it still meets each kind of fault. */
  readonly full: boolean
}

export interface CampaignOptions<A> {
  /** How many rounds `npm test` plays: 1 unless it is told. None where other tests meet the same faults one by one. */
  readonly rounds?: number
  /** Milliseconds that one round may take. */
  readonly roundMs?: number
  /** Looks at what all rounds together came to: for instance that there were faults at all. Not asked of one round. */
  readonly after?: (results: ReadonlyArray<A>) => void
}

/** Marks the title of the test that a run of campaigns selects. */
export const titleOf = (name: string): string => `campaign ${name}:`

const asked = (): CampaignRun | undefined => {
  const text = process.env["SVC_CAMPAIGN"]
  return text === undefined ? undefined : Schema.decodeUnknownSync(CampaignRun)(text)
}

/** Time for finalizers, and for what the rounds of a file share. */
const spareMs = 120_000

/**
 * Registers the test. Name and statement are literal strings: `npm run test:faults -- --help` reads them from the file.
 * Every round has a scope of its own, and real clocks.
 */
export const campaign = <A, E, R>(
  test: Vitest.Test<R | Scope.Scope>,
  name: string,
  statement: string,
  options: CampaignOptions<A>,
  round: (round: Round) => Effect.Effect<A, E, R | Scope.Scope>
): void => {
  const { rounds = 1, roundMs = 300_000, after = () => {} } = options
  const run = asked()
  if (run === undefined) {
    // Told of as skipped: a file of nothing else would be one without tests.
    if (rounds === 0) return void test(statement, () => Effect.void, { skip: true })
    const played = play(
      { name, seed: 1, full: false, roundMs },
      (count) => Effect.succeed(count < rounds),
      round
    )
    test(statement, () => Effect.map(played, after), rounds * roundMs + spareMs)
    return
  }
  const whole = Effect.gen(function* () {
    const end = (yield* Clock.currentTimeMillis) + run.minutes * 60_000
    const inTime = Effect.map(Clock.currentTimeMillis, (now) => now < end)
    const goesOn = (count: number) => (count === 0 ? Effect.succeed(true) : inTime)
    const results = yield* play({ ...run, full: true, roundMs }, goesOn, round)
    process.stderr.write(`campaign ${name}: rounds played from seed ${run.seed} on: ${results.length}\n`)
    if (results.length > 1) after(results)
  })
  // Selected by its title. Other tests of the file are not, nor are other campaigns.
  test(`${titleOf(name)} ${statement}`, () => whole, run.minutes * 60_000 + roundMs + spareMs)
}

/** Plays rounds as long as it goes on. The first that fails is the last, and says how to play it again. */
export const play = <A, E, R>(
  from: { readonly name: string; readonly seed: number; readonly full: boolean; readonly roundMs: number },
  goesOn: (played: number) => Effect.Effect<boolean>,
  round: (round: Round) => Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const { full, roundMs } = from
    const results: Array<A> = []
    for (let seed = from.seed; yield* goesOn(results.length); seed++) {
      const result = yield* Effect.scoped(round({ seed, full })).pipe(
        Effect.timeoutOrElse({
          duration: roundMs,
          orElse: () => Effect.die(new Error(`the round takes longer than ${roundMs} ms`))
        }),
        Effect.catchCause((cause) => Effect.die(failed(from, seed, Cause.squash(cause))))
      )
      results.push(result)
      // Rounds that never wait would keep this process from telling the test runner that it lives.
      yield* Effect.sleep(0)
    }
    return results
  })

const failed = (
  { name, full }: { readonly name: string; readonly full: boolean },
  seed: number,
  error: unknown
) => {
  const why = error instanceof Error ? error.message : String(error)
  const again = full ? `\nPlay it again with: npm run test:faults -- ${name} --seed ${seed}` : ""
  return new Error(`seed ${seed}: ${why}${again}`, { cause: error })
}
