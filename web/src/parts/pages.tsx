/** A list that comes a page at a time. */
import type * as Effect from "effect/Effect"
import { type ReactNode, useState } from "react"
import { useAnswer } from "../api/use-answer.ts"
import { Answered } from "./answered.tsx"
import { Button } from "./button.tsx"

interface Page<A> {
  readonly items: ReadonlyArray<A>
  readonly nextCursor: string | null
}

export const Pages = <A,>({
  place,
  version = "",
  what,
  ask,
  children
}: {
  /** What the list is of; another one begins at its first page. */
  readonly place: string
  /** When to ask again. */
  readonly version?: string
  readonly what: string
  readonly ask: (cursor: string | undefined) => Effect.Effect<Page<A>, unknown>
  readonly children: (items: ReadonlyArray<A>) => ReactNode
}) => {
  const [trail, setTrail] = useState<{ readonly place: string; readonly cursors: ReadonlyArray<string> }>({
    place,
    cursors: []
  })
  const cursors = trail.place === place ? trail.cursors : []
  const cursor = cursors.at(-1)
  const answer = useAnswer(`${place} ${cursor ?? ""}`, () => ask(cursor), version)
  return (
    <Answered of={answer} what={what}>
      {({ items, nextCursor }) => (
        <>
          {children(items)}
          {(cursors.length > 0 || nextCursor !== null) && (
            <div className="flex justify-end gap-2 border-t border-line px-3.5 py-2">
              <Button
                disabled={cursors.length === 0}
                onClick={() => setTrail({ place, cursors: cursors.slice(0, -1) })}
              >
                Newer
              </Button>
              <Button
                disabled={nextCursor === null}
                onClick={() => nextCursor !== null && setTrail({ place, cursors: [...cursors, nextCursor] })}
              >
                Older
              </Button>
            </div>
          )}
        </>
      )}
    </Answered>
  )
}
