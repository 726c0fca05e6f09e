/** Whether what is shown is current; where it is not, since when, and when it is tried again. */

import { useEffect } from "react"
import { signIn } from "../api/place.ts"
import { retryConnection, useLive } from "../live/resources.ts"
import { Button } from "../parts/button.tsx"
import { Ago, In } from "../parts/time.tsx"
import { onReturn } from "../returns.ts"

const reasons: Readonly<Record<number, string>> = {
  0: "The control plane cannot be reached",
  429: "Too many streams or requests are open",
  503: "The control plane is busy or starts"
}

export const ConnectionLine = () => {
  const { connection } = useLive()
  const refused = connection.state === "refused"
  // From signing in, in another tab.
  useEffect(() => (refused ? onReturn(retryConnection) : undefined), [refused])
  if (connection.state === "live" || connection.state === "connecting") return null
  if (connection.state === "refused")
    return (
      <Line>
        {connection.status === 401
          ? "Your session has ended; nothing is shown any more."
          : "You are not a member of this organization any more."}
        {connection.status === 401 ? (
          <Button onClick={signIn}>Sign in</Button>
        ) : (
          <Button onClick={retryConnection}>Try again</Button>
        )}
      </Line>
    )
  return (
    <Line>
      <span>
        {reasons[connection.status] ?? `The control plane answers with an error (${connection.status})`}. What
        you see is as it was <Ago at={new Date(connection.since).toISOString()} /> ago; next try{" "}
        <In at={new Date(connection.retryAt).toISOString()} />.
      </span>
      <Button onClick={retryConnection}>Try now</Button>
    </Line>
  )
}

const Line = ({ children }: { readonly children: React.ReactNode }) => (
  <div
    role="status"
    className="sticky top-0 z-20 flex flex-wrap items-center justify-between gap-2 border-b border-line bg-panel px-4 py-2 sm:px-7"
  >
    {children}
  </div>
)
