/** A queue: what waits in it, another chance for what was given up, and a message to try it with. */
import { useState } from "react"
import { Queues } from "#src/queues/api.ts"
import { idempotent } from "../api/call.ts"
import { services } from "../api/services.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { inputClass } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Problem } from "../parts/problem.tsx"
import { Ago } from "../parts/time.tsx"
import { useEvery } from "./every.ts"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

const parsed = (text: string): { readonly json: unknown } | undefined => {
  try {
    return { json: JSON.parse(text) }
  } catch {
    return undefined
  }
}

export const QueuePanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, queueId: resource.uid }
  const moment = useEvery(5_000)
  const stats = useAnswer(`queue ${resource.uid}`, () => services.queues.stats({ params }), moment)
  const { acting, failure, act } = useAct()
  const [body, setBody] = useState('{"hello": "world"}')
  const [said, setSaid] = useState("")
  const [asked, setAsked] = useState(false)
  const message = parsed(body)
  const tell = (text: string) => {
    setSaid(text)
    stats.again()
  }
  return (
    <>
      <h2>Messages</h2>
      <Answered of={stats} what="counts">
        {(counts) => (
          <Tiles>
            <Tile value={counts.backlog} says="wait or are delivered" />
            <Tile value={counts.inFlight} says="are delivered now" />
            <Tile
              value={counts.failed + counts.inDeadLetterQueue}
              says="were given up"
              bad={counts.failed > 0}
            />
            <Tile
              value={counts.oldestMessageAt === null ? "–" : <Ago at={counts.oldestMessageAt} />}
              says="waits the oldest"
            />
          </Tiles>
        )}
      </Answered>
      <div className="mt-3 flex flex-wrap items-start gap-2">
        <label className="min-w-0 flex-1 basis-64">
          <span className="sr-only">Message in JSON</span>
          <textarea
            rows={1}
            value={body}
            onChange={(event) => setBody(event.target.value)}
            aria-invalid={message === undefined}
            className={`${inputClass} font-mono text-[12.5px]`}
          />
        </label>
        <Button
          busy={acting}
          disabled={message === undefined}
          onClick={() =>
            void act(() =>
              services.queues.publish({
                params,
                headers: idempotent(),
                // What was parsed as JSON is JSON.
                payload: { messages: [{ body: message?.json as never }] }
              })
            ).then((answer) => answer !== undefined && tell("One message is published."))
          }
        >
          Publish
        </Button>
        <Gated by={Queues.endpoints.redrive} what="Redriving">
          <Button onClick={() => setAsked(true)}>Redrive</Button>
        </Gated>
        <Confirm
          open={asked}
          title={`Redrive ${resource.name}`}
          says="Messages that were given up are delivered again, at most 1,000 of them, with all their attempts: what they ask for is done once more."
          action="Deliver them again"
          busy={acting}
          failure={failure}
          close={() => setAsked(false)}
          confirmed={() =>
            void act(() => services.queues.redrive({ params, headers: idempotent(), payload: {} })).then(
              (answer) => {
                if (answer === undefined) return
                setAsked(false)
                tell(`${answer.redriven} messages have another chance.`)
              }
            )
          }
        />
      </div>
      <p role="status" className="mt-1 text-soft">
        {message === undefined ? "The message is not JSON yet." : said}
      </p>
      {failure !== undefined && !asked && <Problem failure={failure} />}
    </>
  )
}
