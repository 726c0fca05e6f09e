/** What becomes of a request that HAProxy did not decide: an answer of the agent's own, or on to the app. */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import { Certificates } from "../certificates/Certificates.ts"
import { agentPaths } from "../haproxy-config.ts"
import { type EdgeAnswer, type EdgeRequest, type Forward, Gate, type GatedRequest } from "./Gate.ts"
import { isServed, makeHold } from "./hold.ts"
import { Routes } from "./Routes.ts"

const answer = (status: number, body: string, headers: Record<string, string> = {}): EdgeAnswer => ({
  _tag: "Answer",
  status,
  headers: { "cache-control": "no-store", ...headers },
  body: `${body}\n`
})

const unknownHost = answer(404, "No app answers here.")
const noTarget = answer(503, "This app is not running.")
const stillAsleep = answer(503, "This app is starting and takes longer than usual. Try again in a moment.", {
  "retry-after": "5"
})
const storeAway = answer(503, "This cannot be answered at the moment. Try again in a moment.", {
  "retry-after": "5"
})

const judgements = Metric.counter("svc_edge_gate_total", {
  description:
    "Requests without a valid ticket to environments that are not public, by what became of them: allowed, redirected (to sign in), refused",
  incremental: true
})
const outcomeOf = (judged: EdgeAnswer | Forward): string =>
  judged._tag === "Forward" ? "allowed" : judged.status === 302 ? "redirected" : "refused"

/** Of a process that has just begun. */
const loadingPatience = "10 seconds"

const token = /^[A-Za-z0-9_-]{1,256}$/

export const makeDispatch = Effect.gen(function* () {
  const routes = yield* Routes
  const gate = yield* Gate
  const certificates = yield* Certificates
  const hold = yield* makeHold

  const challenge = (host: string, path: string) => {
    const name = path.slice(agentPaths.challenge.length)
    if (!token.test(name)) return Effect.succeed(unknownHost)
    return certificates.keyAuthorization({ host, token: name }).pipe(
      Effect.map(
        Option.match({
          onNone: () => unknownHost,
          onSome: (body): EdgeAnswer => ({
            _tag: "Answer",
            status: 200,
            headers: { "content-type": "text/plain", "cache-control": "no-store" },
            body
          })
        })
      ),
      Effect.catch(() => Effect.succeed(storeAway))
    )
  }

  return Effect.fnUntraced(function* (
    request: EdgeRequest,
    body: GatedRequest["body"]
  ): Effect.fn.Return<EdgeAnswer | Forward> {
    const { host, url } = request
    const path = url.split("?", 1)[0] ?? ""
    if (path.startsWith(agentPaths.challenge)) return yield* challenge(host, path)
    if (Option.isNone(yield* Effect.timeoutOption(routes.loaded, loadingPatience))) return storeAway
    const site = routes.siteOf(host)
    if (site === undefined) return unknownHost
    const { orgId, environmentUid, access } = site
    const gated: GatedRequest = { ...request, orgId, environmentUid, access, body }
    if (path.startsWith(agentPaths.own)) return yield* gate.own(gated)
    // Who may not see an app learns nothing of it, and wakes nothing.
    const judged: EdgeAnswer | Forward =
      access === "public"
        ? { _tag: "Forward" }
        : yield* Effect.tap(gate.judge(gated), (one) =>
            Metric.update(Metric.withAttributes(judgements, { outcome: outcomeOf(one) }), 1)
          )
    if (judged._tag === "Answer" || (isServed(site) && !routes.isAhead())) return judged
    if (!site.asleep && site.target === null) return noTarget
    return (yield* hold(site)) ? judged : stillAsleep
  })
})
