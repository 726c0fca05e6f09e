/**
 * Loaded before anything else, it makes the wall clock of the process wrong by `?offset=` milliseconds, and by another
 * `?jump=` from each SIGUSR2 on. Timers and the monotonic clock go on as they do when somebody sets a machine's clock.
 */
const { searchParams } = new URL(import.meta.url)
let offset = Number(searchParams.get("offset") ?? 0)
const jump = Number(searchParams.get("jump") ?? 0)
const RealDate = Date
const now = () => RealDate.now() + offset

globalThis.Date = new Proxy(RealDate, {
  construct: (target, given: []) => (given.length === 0 ? new target(now()) : new target(...given)),
  apply: () => new RealDate(now()).toString(),
  get: (target, key) => (key === "now" ? now : Reflect.get(target, key))
})
process.on("SIGUSR2", () => {
  // There and back again.
  offset = offset === 0 ? jump : offset > 0 ? -jump : 0
})
