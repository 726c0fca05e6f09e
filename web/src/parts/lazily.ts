/** Components that are loaded when they are first shown. */
import { type ComponentType, createElement, lazy, type ReactNode } from "react"

/** After this a load that failed is tried once more: a connection that changed drops what was under way. */
const pauseMs = 500

/** The file of a part of the dashboard did not come, twice. */
export class NotLoaded extends Error {}

const failed = new Set<() => void>()

/** What could not be loaded is asked for again when it is next shown; until then its failure stays. */
export const forgetFailures = (): void => {
  for (const reset of failed) reset()
  failed.clear()
}

export const lazily = <Props extends object>(
  load: () => Promise<ComponentType<Props>>
): ((props: Props) => ReactNode) => {
  const once = () =>
    lazy(async () => {
      try {
        return { default: await load() }
      } catch {
        await new Promise((resolve) => setTimeout(resolve, pauseMs))
      }
      try {
        return { default: await load() }
      } catch (cause) {
        failed.add(reset)
        throw new NotLoaded("A part of the dashboard could not be loaded", { cause })
      }
    })
  let current: ComponentType<Props> = once()
  const reset = () => {
    current = once()
  }
  return (props) => createElement(current, props)
}
