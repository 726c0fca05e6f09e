/**
 * One Postgres for the whole run: `SVC_TEST_DATABASE_URL` when it is set (Postgres 15 or newer, with a login that may
 * make databases and roles), else the bundled server in a temporary folder. Every test file makes a database of its
 * own in it.
 */
import type { TestProject } from "vitest/node"
import { setUpHost } from "#src/infra/setup.ts"
import { setUpBrowser } from "./browser.ts"
import { setUpContainers } from "./containers.ts"
import { startPostgres } from "./postgres.ts"
import { setUpObjectStore } from "./s3.ts"

declare module "vitest" {
  interface ProvidedContext {
    readonly databaseUrl: string
  }
}

export default async function setup(project: TestProject): Promise<(() => void) | undefined> {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
  if (major < 24 || (major === 24 && minor < 7)) {
    throw new Error(`Tests need Node 24.7 or newer and run on ${process.version}: start them with "npm test"`)
  }
  await setUpHost((line) => void process.stderr.write(`${line}\n`))
  setUpBrowser((line) => void process.stderr.write(`${line}\n`))
  setUpContainers((line) => void process.stderr.write(`${line}\n`))
  setUpObjectStore((line) => void process.stderr.write(`${line}\n`))
  const outside = process.env["SVC_TEST_DATABASE_URL"]
  if (outside !== undefined && outside !== "") {
    project.provide("databaseUrl", outside)
    return undefined
  }
  const server = await startPostgres({ durable: false })
  project.provide("databaseUrl", server.url)
  return server.stop
}
