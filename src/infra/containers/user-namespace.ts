/**
 * Whether containers get a user namespace of their own, in which no user is one of this machine's (user_namespaces(7)).
 * Podman run by root makes one for each container out of the range that the user `containers` has in `/etc/subuid` and
 * `/etc/subgid`; Docker does it for all of its containers or for none (`userns-remap`), and engines without root always do.
 */
import * as fs from "node:fs"
import * as Effect from "effect/Effect"
import type { Act } from "./calls.ts"
import type { EngineInfo } from "./engine-info.ts"
import { ContainerError } from "./error.ts"

export type UserNamespaces = "auto" | "required" | "off"

/** Users of one container: all that images name, also `nobody` (65534). */
const size = 65_536

/**
 * Containers that there is room for at least where nobody has said that they need namespaces: a machine whose range is
 * smaller, such as the 65,536 users that one gets by default, would run one container and refuse the next.
 */
const usualRoom = 64

/** How many containers a text in the form of subuid(5) has room for. */
export const roomIn = (text: string): number =>
  text
    .split("\n")
    .map((line) => line.split(":"))
    .reduce(
      (sum, [user, , count]) => sum + (user === "containers" ? Math.floor(Number(count) / size) || 0 : 0),
      0
    )

const machineHasRoom = (): boolean =>
  ["/etc/subuid", "/etc/subgid"].every((file) => {
    try {
      return roomIn(fs.readFileSync(file, "utf8")) >= usualRoom
    } catch {
      return false
    }
  })

/** Podman finds no users for a container, since others have them. */
export const whenUsedUp = (error: ContainerError): ContainerError =>
  /not enough (unused|available) ids|find enough available ids/i.test(error.message)
    ? new ContainerError({
        reason: "Failed",
        message: `No users are left for another container: each takes ${size} of those that the user "containers" has in /etc/subuid and /etc/subgid. Give it more, such as containers:2147483648:2147483648`,
        cause: error
      })
    : error

export const needsHostUsers = Effect.suspend(
  () =>
    new ContainerError({
      reason: "Failed",
      message:
        "Containers of builds have this machine's users with Podman as root, and SVC_CONTAINER_USERNS=required runs nothing without a user namespace: build elsewhere and deploy the image"
    })
)

/** What `UsernsMode` of a container says; undefined: nothing, which is the engine's own way. */
export const usernsModeOf = Effect.fnUntraced(function* (wanted: UserNamespaces, info: Act<EngineInfo>) {
  if (wanted === "off" || (wanted === "auto" && !machineHasRoom())) return undefined
  const { isPodman, mapsUsers } = yield* info
  if (mapsUsers) return undefined
  if (isPodman) return `auto:size=${size}`
  if (wanted === "auto") return undefined
  return yield* new ContainerError({
    reason: "Failed",
    message:
      "The container engine makes no user namespaces (SVC_CONTAINER_USERNS=required): set userns-remap in Docker's daemon.json"
  })
})
