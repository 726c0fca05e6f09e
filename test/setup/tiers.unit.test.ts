import { execFileSync, spawn } from "node:child_process"
import * as net from "node:net"
import { assert, it } from "@effect/vitest"

it("a unit test that reaches for a process or a server fails, and is told where it belongs", async () => {
  assert.throws(() => spawn("true"), /x\.test\.ts/)
  assert.throws(() => execFileSync("true"), /x\.test\.ts/)
  assert.throws(() => net.connect(1, "127.0.0.1"), /x\.store\.test\.ts/)
  assert.throws(() => net.createServer().listen(0), /x\.store\.test\.ts/)
  const failure: unknown = await fetch("http://127.0.0.1:40001/").catch(
    ({ cause }: { cause: unknown }) => cause
  )
  assert.match(String(failure), /x\.store\.test\.ts/)
})
