/** What tests with real servers need on the machine, installed once per run where that is allowed, else said. */
import { setUpHost } from "#src/infra/host/setup.ts"
import { setUpBrowser } from "./browser.ts"
import { setUpContainers } from "./containers.ts"
import { keepTemplates } from "./new-data.ts"
import { setUpObjectStore } from "./s3.ts"
import { removeOrphanedSegments } from "./shared-memory.ts"

const say = (line: string): void => void process.stderr.write(`${line}\n`)

export default async function setup(): Promise<() => void> {
  await setUpHost(say)
  setUpBrowser(say)
  setUpContainers(say)
  setUpObjectStore(say)
  const began = Date.now()
  const removeTemplates = keepTemplates()
  return () => {
    removeTemplates()
    removeOrphanedSegments(began)
  }
}
