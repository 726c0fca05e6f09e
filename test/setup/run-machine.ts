/** What tests with real servers need on the machine, installed once per run where that is allowed, else said. */
import { fileURLToPath } from "node:url"
import type { TestProject } from "vitest/node"
import { build } from "#src/cli/bundle/build.ts"
import { setUpHost } from "#src/infra/host/setup.ts"
import { setUpBrowser } from "./browser.ts"
import { setUpContainers } from "./containers.ts"
import { setUpNameServers } from "./name-servers.ts"
import { keepTemplates } from "./new-data.ts"
import { setUpObjectStore } from "./s3.ts"

const compileCache = fileURLToPath(new URL("../../node_modules/.cache/tests", import.meta.url))

const say = (line: string): void => void process.stderr.write(`${line}\n`)

export default async function setup({ config }: TestProject): Promise<() => void> {
  // Programs that tests start are compiled once. Code from this cache says less of what ran, so it is not for coverage.
  if (!config.coverage.enabled) process.env["NODE_COMPILE_CACHE"] ??= compileCache
  await build()
  await setUpHost(say)
  setUpBrowser(say)
  setUpContainers(say)
  setUpNameServers(say)
  setUpObjectStore(say)
  return keepTemplates()
}
