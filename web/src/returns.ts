/** How often somebody came back to this tab: a reason to ask again what may have changed elsewhere meanwhile. */
import { useEffect, useState } from "react"

export const onReturn = (run: () => void): (() => void) => {
  const look = () => {
    if (!document.hidden) run()
  }
  document.addEventListener("visibilitychange", look)
  return () => document.removeEventListener("visibilitychange", look)
}

export const useReturns = (): number => {
  const [times, setTimes] = useState(0)
  useEffect(() => onReturn(() => setTimes((before) => before + 1)), [])
  return times
}
