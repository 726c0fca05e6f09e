import { fileURLToPath } from "node:url"

/** The app that a newcomer deploys first. */
export const exampleFolder = fileURLToPath(new URL("../../examples/app", import.meta.url))
