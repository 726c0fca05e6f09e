import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterEach, assert, beforeEach, it } from "@effect/vitest"
import { durable } from "#src/infra/host/durable.ts"

let folder: string
const searched = process.env["PATH"]

/** A `sync` of ours is found before the system's. */
const syncIs = (script: string) => {
  const programs = path.join(folder, "programs")
  fs.mkdirSync(programs)
  fs.writeFileSync(path.join(programs, "sync"), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
  process.env["PATH"] = `${programs}:${searched}`
}

beforeEach(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
  fs.mkdirSync(path.join(folder, "data"))
  for (const name of ["a", "b", "c"]) fs.writeFileSync(path.join(folder, "data", name), name)
})
afterEach(() => {
  process.env["PATH"] = searched
  fs.rmSync(folder, { recursive: true, force: true })
})

const count = async () => {
  let times = 0
  await durable(path.join(folder, "data"), new AbortController().signal, () => times++)
  return times
}

it("a disk that takes long for all at once counts as being at work", async () => {
  syncIs("sleep 2.5")
  assert.isAtLeast(await count(), 1)
})

it("where the system cannot do all at once, each file counts", async () => {
  syncIs("exit 1")
  assert.isAtLeast(await count(), 3)
})
