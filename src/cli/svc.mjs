#!/usr/bin/env node
// Plain JavaScript, so that an old Node can read it and say what is wrong.
import { existsSync } from "node:fs"
import * as module from "node:module"
import { fileURLToPath } from "node:url"

const [major, minor] = process.versions.node.split(".").map(Number)
// Argon2 came with 24.7.
if (major > 24 || (major === 24 && minor >= 7)) {
  // Compiling the program again each time would be nearly half of what a short command costs. The folder is as safe
  // as the program itself; where it cannot be written, nothing is kept.
  module.enableCompileCache?.(fileURLToPath(new URL("../../node_modules/.cache/svc", import.meta.url)))
  const { freshBundle } = await import("./bundle/fresh.mjs")
  await import(freshBundle() ?? "./main.ts")
} else {
  // The Node that npm installed beside the program serves as well.
  const own = fileURLToPath(new URL("../../node_modules/.bin/node", import.meta.url))
  if (!existsSync(own)) {
    console.error(
      `svc needs Node 24.7 or newer; this is ${process.version}. Run "npm ci" or install a newer Node.`
    )
    process.exit(1)
  }
  const { spawn } = await import("node:child_process")
  const child = spawn(own, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: "inherit" })
  // Whoever ends this process means that one.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal))
  child.on("exit", (status, signal) => {
    if (signal === null) process.exit(status ?? 1)
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
  })
}
