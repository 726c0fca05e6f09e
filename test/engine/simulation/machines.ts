/**
 * Virtual machines on one virtual timeline. Nothing in here waits for the real world: the timeline runs a fiber's next
 * step or jumps to the next timer until nothing is left to do, all within one synchronous call. The seed decides which
 * fiber goes on, where a fiber is preempted and how late a timer fires, so one seed is one history, to the last step.
 *
 * A machine can be killed, which ends it between any two steps without a word, as SIGKILL does; or frozen, after which
 * it goes on where it was without knowing that time has passed, as after SIGSTOP or a long pause for garbage collection.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Random from "effect/Random"
import * as References from "effect/References"
import * as Scheduler from "effect/Scheduler"
import { Seeded } from "./random.ts"

interface Timer {
  readonly at: number
  readonly order: number
  /** Undefined once it is called off. */
  run: (() => void) | undefined
}

/** Operations after which a fiber is made to yield, at most: preemption must be able to happen anywhere. */
const longestRun = 120

export class Timeline {
  /** Milliseconds since 1970. */
  now = Date.UTC(2030, 0, 1)
  readonly random: Seeded
  readonly #timers: Array<Timer> = []
  readonly #ready: Array<Dispatcher> = []
  #untilYield = longestRun

  constructor(seed: number) {
    this.random = new Seeded(seed)
  }

  /** Answers how to call it off. */
  after(ms: number, run: () => void): () => void {
    const timer: Timer = { at: this.now + Math.max(0, ms), order: this.random.nextDoubleUnsafe(), run }
    this.#push(timer)
    return () => {
      timer.run = undefined
    }
  }

  /** Lets everything happen that happens until then. Ends early once `done` holds, asked after every timer. */
  runUntil(end: number, done: () => boolean = () => false): void {
    for (;;) {
      this.#drain()
      if (done()) return
      const next = this.#timers[0]
      if (next === undefined || next.at > end) break
      this.#pop()
      if (next.run === undefined) continue
      this.now = Math.max(this.now, next.at)
      next.run()
    }
    this.now = Math.max(this.now, end)
  }

  enqueue(dispatcher: Dispatcher): void {
    this.#ready.push(dispatcher)
  }

  shouldYield(): boolean {
    if (--this.#untilYield > 0) return false
    this.#untilYield = this.random.int(1, longestRun)
    return true
  }

  #drain(): void {
    const ready = this.#ready
    for (let steps = 0; ready.length > 0; steps++) {
      if (steps > 1_000_000) throw new Error("The fibers run for ever without waiting for anything")
      const index = this.random.int(0, ready.length - 1)
      const dispatcher = ready[index]!
      const last = ready.pop()!
      if (last !== dispatcher) ready[index] = last
      dispatcher.runOne()
    }
  }

  // A binary heap by time; what happens at the same time happens in an order of the seed's choice.
  #push(timer: Timer): void {
    const heap = this.#timers
    let at = heap.push(timer) - 1
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!earlier(timer, heap[parent]!)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = timer
  }
  #pop(): void {
    const heap = this.#timers
    const timer = heap.pop()!
    if (heap.length === 0) return
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && earlier(heap[child + 1]!, heap[child]!)) child++
      if (!earlier(heap[child]!, timer)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = timer
  }
}

const earlier = (a: Timer, b: Timer): boolean => a.at < b.at || (a.at === b.at && a.order < b.order)

/** Tasks of one fiber, in order of priority and then of arrival. */
class Dispatcher implements Scheduler.SchedulerDispatcher {
  readonly #machine: Machine
  readonly #tasks: Array<{ readonly priority: number; readonly run: () => void }> = []
  #queued = false

  constructor(machine: Machine) {
    this.#machine = machine
  }

  scheduleTask(run: () => void, priority: number): void {
    const later = this.#tasks.findIndex((task) => task.priority > priority)
    this.#tasks.splice(later < 0 ? this.#tasks.length : later, 0, { priority, run })
    this.#enqueue()
  }

  runOne(): void {
    this.#queued = false
    this.#machine.deliver(() => {
      this.#tasks.shift()?.run()
      if (this.#tasks.length > 0) this.#enqueue()
    })
  }

  flush(): void {
    for (let task = this.#tasks.shift(); task !== undefined; task = this.#tasks.shift()) task.run()
  }

  #enqueue(): void {
    if (this.#queued) return
    this.#queued = true
    this.#machine.timeline.enqueue(this)
  }
}

export class Machine {
  readonly name: string
  readonly timeline: Timeline
  state: "up" | "frozen" | "dead" = "up"
  /** What came in while it was frozen. */
  readonly #held: Array<() => void> = []
  readonly #context: Context.Context<never>

  constructor(name: string, timeline: Timeline) {
    this.name = name
    this.timeline = timeline
    // Clocks of machines disagree, and nothing may depend on it.
    const skew = timeline.random.between(-60_000, 60_000)
    const millis = () => timeline.now + skew
    const nanos = () => BigInt(Math.round(millis() * 1e6))
    const clock: Clock.Clock = {
      currentTimeMillisUnsafe: millis,
      currentTimeMillis: Effect.sync(millis),
      currentTimeNanosUnsafe: nanos,
      currentTimeNanos: Effect.sync(nanos),
      monotonicTimeNanosUnsafe: nanos,
      monotonicTimeNanos: Effect.sync(nanos),
      sleep: (duration) =>
        Effect.callback<void>((resume) => {
          const ms = Duration.toMillis(duration)
          if (!Number.isFinite(ms)) return
          const cancel = timeline.after(ms + timeline.random.nextDoubleUnsafe(), () =>
            this.deliver(() => resume(Effect.void))
          )
          return Effect.sync(cancel)
        })
    }
    const scheduler: Scheduler.Scheduler = {
      executionMode: "async",
      shouldYield: () => timeline.shouldYield(),
      makeDispatcher: () => new Dispatcher(this)
    }
    this.#context = Context.make(Clock.Clock, clock).pipe(
      Context.add(Scheduler.Scheduler, scheduler),
      Context.add(Random.Random, timeline.random),
      Context.add(References.MinimumLogLevel, "None"),
      Context.add(References.TracerEnabled, false)
    )
  }

  fork<A, E>(effect: Effect.Effect<A, E>): Fiber.Fiber<A, E> {
    return Effect.runForkWith(this.#context)(effect)
  }

  /** Something reaches the machine: a step of a fiber, an answer, a timer. */
  deliver(run: () => void): void {
    if (this.state === "up") run()
    else if (this.state === "frozen") this.#held.push(run)
  }

  freeze(): void {
    if (this.state === "up") this.state = "frozen"
  }

  /** What came in meanwhile is taken up in an order of the seed's choice. */
  thaw(): void {
    if (this.state !== "frozen") return
    this.state = "up"
    for (const run of this.#held.splice(0)) this.timeline.after(0, () => this.deliver(run))
  }

  kill(): void {
    this.state = "dead"
    this.#held.length = 0
  }
}
