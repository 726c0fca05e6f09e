/**
 * One Postgres for the whole run: `SVC_TEST_DATABASE_URL` when it is set (Postgres 15 or newer, with a login that may
 * make databases and roles), else the bundled server in a temporary folder. A migrated database is made in it once,
 * and every test file copies that one or makes an empty one of its own.
 */
import { randomUUID } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { TestProject } from "vitest/node"
import { setUpHost } from "#src/infra/host/setup.ts"
import { migrate } from "#src/store/migrate.ts"
import { asAdministrator } from "./administrator.ts"
import { startPostgres } from "./postgres.ts"
import { removeOrphanedSegments } from "./shared-memory.ts"

declare module "vitest" {
  interface ProvidedContext {
    readonly databaseUrl: string
    /** Name of a database with the schema of the state store and no rows. Nobody connects to it. */
    readonly databaseTemplate: string
  }
}

export default async function setup({ vitest }: TestProject): Promise<(() => Promise<void>) | undefined> {
  // Two tiers share it: whichever comes first starts it for both.
  if (vitest.getProvidedContext().databaseUrl !== undefined) return undefined
  await setUpHost((line) => void process.stderr.write(`${line}\n`))
  const began = Date.now()
  const outside = process.env["SVC_TEST_DATABASE_URL"]
  const server =
    outside === undefined || outside === ""
      ? await startPostgres({ durable: false })
      : { url: outside, stop: () => undefined }
  const template = `test_template_${randomUUID().replaceAll("-", "")}`
  const url = new URL(server.url)
  url.pathname = `/${template}`
  const administrate = asAdministrator(server.url)
  try {
    await Effect.runPromise(
      Effect.andThen(administrate(`create database ${template}`), migrate(Redacted.make(url.href)))
    )
  } catch (error) {
    server.stop()
    throw error
  }
  vitest.provide("databaseUrl", server.url)
  vitest.provide("databaseTemplate", template)
  return async () => {
    try {
      await Effect.runPromise(administrate(`drop database if exists ${template} with (force)`))
    } finally {
      server.stop()
      // All tests have ended, and this was the last server of the run.
      await removeOrphanedSegments(began)
    }
  }
}
