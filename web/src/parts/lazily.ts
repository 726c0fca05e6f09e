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

let asked = 0
/**
 * A browser that did not get a file remembers that for as long as the page lives (HTML, "fetch a single module script"):
 * asked for by another address, it is fetched. What the file imports is remembered as well; then only the whole page helps.
 */
const anew = async <Exports>(load: () => Promise<Exports>, cause: unknown): Promise<Exports> => {
  const address = /https?:\/\/\S+?\.js/.exec(cause instanceof Error ? cause.message : "")?.[0]
  return address !== undefined && new URL(address).origin === location.origin
    ? import(/* @vite-ignore */ `${address}?again=${++asked}`)
    : load()
}

/** What a file exports, tried twice. */
const fetched = async <Exports>(load: () => Promise<Exports>): Promise<Exports> => {
  try {
    return await load()
  } catch (cause) {
    await new Promise((resolve) => setTimeout(resolve, pauseMs))
    return anew(load, cause)
  }
}

/** `load` says which part of which file it is: `async (get) => (await get(() => import("./x.tsx"))).X`. */
export const lazily = <Props extends object>(
  load: (get: typeof fetched) => Promise<ComponentType<Props>>
): ((props: Props) => ReactNode) => {
  const once = () =>
    lazy(async () => {
      try {
        return { default: await load(fetched) }
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
