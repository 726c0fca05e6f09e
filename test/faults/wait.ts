/** Waiting for what other processes do. */
export const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** The first value that is neither undefined nor false. What `look` throws counts as "not yet". */
export const until = async <A>(
  label: string,
  look: () => Promise<A | undefined | false> | A | undefined | false,
  seconds = 240
): Promise<A> => {
  const deadline = performance.now() + seconds * 1000
  let trouble: unknown
  while (performance.now() < deadline) {
    try {
      const value = await look()
      if (value !== undefined && value !== false) return value
      trouble = undefined
    } catch (error) {
      trouble = error
    }
    await sleep(50)
  }
  throw new Error(`never: ${label} (${String(trouble)})`)
}
