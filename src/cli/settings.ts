/** Settings of the working folder: its `.env` file stands in for what the environment does not say. */
import { readFileSync } from "node:fs"
import { parseEnv } from "node:util"

const fromFolder = new Set<string>()

/** Takes over what is ours. The rest of the file belongs to the application, and could do harm here. */
export const loadFolderSettings = (): void => {
  let text: string
  try {
    text = readFileSync(".env", "utf8")
  } catch {
    return
  }
  for (const [name, value] of Object.entries(parseEnv(text))) {
    if (!name.startsWith("SVC_") || value === undefined || process.env[name] !== undefined) continue
    process.env[name] = value
    fromFolder.add(name)
  }
}

/** Whether the working folder, and not the environment, said this. */
export const isFromFolder = (name: string): boolean => fromFolder.has(name)
