/**
 * Turns at something scarce, fairly between organizations: each may have some of all at once, and those that wait are
 * taken in turn, organization by organization, so that one whose work takes long holds up no other.
 */
import * as Effect from "effect/Effect"
import * as PartitionedSemaphore from "effect/PartitionedSemaphore"
import * as Semaphore from "effect/Semaphore"

export const makeTurns = Effect.fnUntraced(function* (inAll: number, forEach: number) {
  const all = yield* PartitionedSemaphore.make<string>({ permits: inAll })
  const organizations = new Map<string, { readonly room: Semaphore.Semaphore; users: number }>()

  const roomOf = Effect.fnUntraced(function* (orgId: string) {
    const room = organizations.get(orgId) ?? { room: yield* Semaphore.make(forEach), users: 0 }
    organizations.set(orgId, room)
    room.users++
    return room
  })

  return {
    /** Waits for a turn, however long that takes. */
    inTurn:
      (orgId: string) =>
      <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
        Effect.acquireUseRelease(
          roomOf(orgId),
          ({ room }) => room.withPermit(all.withPermit(orgId)(self)),
          (room) =>
            Effect.sync(() => {
              room.users--
              if (room.users === 0) organizations.delete(orgId)
            })
        )
  }
})
