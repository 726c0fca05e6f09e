/** The browser that pages are tested in. */
import * as fs from "node:fs"
import * as path from "node:path"
import { installPackage } from "#src/infra/host/setup.ts"

const wholeBrowsers = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
/** Chromium without a window is the first choice: it starts with half the work. */
const browsers = ["/usr/bin/chromium-headless-shell", ...wholeBrowsers]
const bubblewrap = "/usr/bin/bwrap"

const firstOf = (places: ReadonlyArray<string>): string | undefined => {
  const browser = places.find((place) => fs.existsSync(place))
  return browser === undefined || !fs.existsSync(bubblewrap) ? browser : withoutNetworkNews(browser)
}
/** Undefined: there is none. */
export const browserPath = (): string | undefined => firstOf(browsers)
/** For what only browsers with a window do, such as keeping pages to come back to. */
export const wholeBrowserPath = (): string | undefined => firstOf(wholeBrowsers)

/** As with what the platform itself needs: installed where that is allowed, else said. */
export const setUpBrowser = (say: (line: string) => void): void => {
  const lacking = [
    ...(fs.existsSync("/usr/bin/chromium-headless-shell") ? [] : ["chromium-headless-shell"]),
    ...(wholeBrowsers.some((place) => fs.existsSync(place)) ? [] : ["chromium"]),
    ...(fs.existsSync(bubblewrap) ? [] : ["bubblewrap"])
  ]
  if (lacking.length === 0) return
  say(`Installing ${lacking.join(", ")} (needed by the tests of pages) ...`)
  for (const name of lacking)
    if (!installPackage(name))
      say(`${name} is missing; the tests of pages need it. To get it: apt-get install -y ${name}`)
}

/**
 * Containers of other tests come and go with networks of their own. Chromium hears of each change through a socket of
 * the kernel's and drops what it is connecting for (ERR_NETWORK_CHANGED): scripts of a page, which then stays empty. It
 * is started without that kind of socket, and then takes the network for one that never changes.
 */
const withoutNetworkNews = (browser: string): string => {
  const folder = path.resolve("node_modules/.cache/browser", path.basename(browser))
  const filter = path.join(folder, "filter")
  const start = path.join(folder, "start")
  const script = `#!/bin/sh\nexec ${bubblewrap} --dev-bind / / --die-with-parent --seccomp 9 -- ${browser} "$@" 9<'${filter}'\n`
  fs.mkdirSync(folder, { recursive: true })
  for (const [file, content] of [
    [filter, noNetlink()],
    [start, Buffer.from(script)]
  ] as const) {
    if (fs.existsSync(file) && fs.readFileSync(file).equals(content)) continue
    // Others begin at the same time, and none may run half of it.
    const written = `${file}.${process.pid}`
    fs.writeFileSync(written, content, { mode: 0o755 })
    fs.renameSync(written, file)
  }
  return start
}

/** A program for seccomp(2): `socket(AF_NETLINK, ...)` fails as where the kernel has no such sockets. */
const noNetlink = (): Buffer => {
  const socketCall = process.arch === "arm64" ? 198 : 41
  const load = 0x20
  const skipUnlessEqual = 0x15
  const answer = 0x06
  const familyNotSupported = 97
  return Buffer.concat([
    instruction(load, 0, 0),
    instruction(skipUnlessEqual, 3, socketCall),
    instruction(load, 0, 16),
    instruction(skipUnlessEqual, 1, 16),
    instruction(answer, 0, 0x0005_0000 | familyNotSupported),
    instruction(answer, 0, 0x7fff_0000)
  ])
}

/** `struct sock_filter` of the kernel, of which only the jump on "unequal" is used here. */
const instruction = (code: number, skip: number, value: number): Buffer => {
  const bytes = Buffer.alloc(8)
  bytes.writeUInt16LE(code, 0)
  bytes.writeUInt8(skip, 3)
  bytes.writeUInt32LE(value, 4)
  return bytes
}
