/** Components that are loaded when they are first shown. */
import { type ComponentType, lazy } from "react"

/** After this a load that failed is tried once more: a connection that changed drops what was under way. */
const pauseMs = 500

export const lazily = <Props extends object>(load: () => Promise<ComponentType<Props>>) =>
  lazy(async () => {
    try {
      return { default: await load() }
    } catch {
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
      return { default: await load() }
    }
  })
