/** A number that changes every so many milliseconds while the page is seen: for what no stream tells. */
import { useEffect, useState } from "react"

export const useEvery = (ms: number): number => {
  const [times, setTimes] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setTimes((before) => before + 1), ms)
    return () => clearInterval(timer)
  }, [ms])
  return times
}
