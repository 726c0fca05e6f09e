/**
 * Holding managed servers to their limits, where the machine lets us, by SVC_SERVER_LIMITS: `auto` goes on without where
 * it does not, `required` starts no server then, `off` never tries. What does not need control groups holds everywhere on
 * Linux: how early the kernel ends a server when the whole machine has no memory left.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import type { Settings } from "#src/config.ts"
import { type GroupSystem, type Placed, placeGroups, thisSystem } from "./control-group-place.ts"
import { type ControlGroups, controlGroups } from "./control-groups.ts"
import { HostError, hostError } from "./error.ts"
import { type HeldServer, oomScores, type ServerLimits } from "./server-limits.ts"

export interface Holding {
  /** Whether servers are in control groups here, and if not why. Found out once. */
  readonly placed: Effect.Effect<Placed>
  /** Makes the group of a server and answers what its first process writes its number to. */
  readonly make: (name: string, limits: ServerLimits) => Effect.Effect<ReadonlyArray<string>, HostError>
  /** How a server is held; `pid`: its first process, if it runs. */
  readonly look: (name: string, pid: number | undefined) => Effect.Effect<HeldServer, HostError>
  /** Makes that right without stopping it. */
  readonly mend: (
    name: string,
    pid: number | undefined,
    limits: ServerLimits
  ) => Effect.Effect<void, HostError>
  /** Removes the group of a server that is gone. One with processes stays, until {@link tidy} finds it without. */
  readonly release: (name: string) => Effect.Effect<void, HostError>
  /** Processes that the kernel has ended, by server. */
  readonly kills: Effect.Effect<ReadonlyMap<string, number>, HostError>
  /** Removes groups of servers that are not there any more. */
  readonly tidy: (isThere: (name: string) => boolean) => Effect.Effect<void, HostError>
  /** Removes all groups without processes, and the folder of all when none is left. */
  readonly leave: Effect.Effect<void, HostError>
}

/** One for each data folder: two installations on a machine do not meet. */
export const placeName = (dataDir: string): string =>
  `svc-${createHash("sha256").update(dataDir).digest("hex").slice(0, 12)}`

export const makeHolding = (
  { dataDir, serverLimits: mode }: Pick<Settings, "dataDir" | "serverLimits">,
  system: GroupSystem = thisSystem
): Effect.Effect<Holding> =>
  Effect.gen(function* () {
    const attempt = <A>(message: string, body: () => Promise<A>) =>
      Effect.tryPromise({ try: body, catch: hostError(message) })
    const place = Effect.promise(
      (): Promise<Placed> =>
        mode === "off"
          ? Promise.resolve({ usable: false, why: "SVC_SERVER_LIMITS is off", hint: "set it to auto" })
          : placeGroups(placeName(dataDir), system)
    )
    const placed = yield* Effect.cached(place)
    /** With nothing to do it with, there is nothing to do. */
    const withGroups = <A>(
      otherwise: A,
      body: (groups: ControlGroups) => Effect.Effect<A, HostError>,
      where = placed
    ) =>
      Effect.flatMap(where, (found) =>
        found.usable ? body(controlGroups(found.place, system)) : Effect.succeed(otherwise)
      )
    const scoreFile = (pid: number) => path.join(system.procDir, String(pid), "oom_score_adj")
    const scoreOf = (pid: number) =>
      Effect.promise(() =>
        fs.readFile(scoreFile(pid), "utf8").then(
          (text): number | undefined => Number(text),
          () => undefined
        )
      )

    return {
      placed,
      make: Effect.fnUntraced(function* (name, limits) {
        // Anew: somebody may have removed the folder of all groups.
        const found = yield* place
        if (!found.usable) {
          if (mode !== "required") return []
          return yield* new HostError({
            message: `Servers must have limits (SVC_SERVER_LIMITS), and cannot: ${found.why}; ${found.hint}`
          })
        }
        const groups = controlGroups(found.place, system)
        const made = attempt(`Cannot limit the server ${name}`, () => groups.limit(name, limits))
        if (mode === "required") yield* made
        else
          yield* Effect.catch(made, ({ message }) =>
            Effect.logWarning("a server starts without its limits", { server: name, error: message })
          )
        return groups.joins(name)
      }),
      look: Effect.fnUntraced(function* (name, pid) {
        const oomScore = pid === undefined ? undefined : yield* scoreOf(pid)
        const base = { kills: 0, ...(oomScore === undefined ? {} : { oomScore }) }
        return yield* withGroups<HeldServer>(base, (groups) =>
          attempt(`Cannot look at the limits of the server ${name}`, async () => ({
            ...base,
            group: await groups.look(name, pid),
            kills: await groups.kills(name)
          }))
        )
      }),
      mend: Effect.fnUntraced(function* (name, pid, limits) {
        yield* withGroups<void>(
          undefined,
          (groups) =>
            attempt(`Cannot limit the server ${name}`, async () => {
              await groups.limit(name, limits)
              if (pid !== undefined) await groups.take(name, pid)
            }),
          place
        )
        if (pid === undefined) return
        const score = yield* scoreOf(pid)
        if (score !== undefined && score < oomScores.server)
          yield* attempt(`Cannot change how early the server ${name} is ended`, () =>
            system.write(scoreFile(pid), String(oomScores.server))
          )
      }),
      release: (name) =>
        withGroups<void>(undefined, (groups) =>
          Effect.asVoid(attempt(`Cannot remove the control group of ${name}`, () => groups.remove(name)))
        ),
      kills: withGroups<ReadonlyMap<string, number>>(new Map(), (groups) =>
        attempt("Cannot look at the control groups", async () => {
          const counts = new Map<string, number>()
          for (const name of await groups.names()) counts.set(name, await groups.kills(name))
          return counts
        })
      ),
      tidy: (isThere) =>
        withGroups<void>(undefined, (groups) =>
          attempt("Cannot tidy the control groups", async () => {
            for (const name of await groups.names()) if (!isThere(name)) await groups.remove(name)
          })
        ),
      leave: withGroups<void>(undefined, (groups) =>
        attempt("Cannot remove the control groups", async () => {
          const gone = await Promise.all((await groups.names()).map((name) => groups.remove(name)))
          if (gone.every((one) => one)) await groups.removePlace()
        })
      )
    }
  })
