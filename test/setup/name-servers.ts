/** What tests of the edge need besides the edge: an ACME authority, name servers and clients of other hands. */
import * as fs from "node:fs"
import { installPackage } from "#src/infra/host/setup.ts"

const packages = [
  // With pebble-challtestsrv, a name server that tests tell what to say.
  ["pebble", "/usr/bin/pebble"],
  ["bind9", "/usr/sbin/named"],
  ["curl", "/usr/bin/curl"],
  // `certutil`, by which a browser is told whom to trust.
  ["libnss3-tools", "/usr/bin/certutil"]
] as const

export const setUpNameServers = (say: (line: string) => void): void => {
  const lacking = packages.filter(([, proof]) => !fs.existsSync(proof)).map(([name]) => name)
  if (lacking.length === 0) return
  say(`Installing ${lacking.join(", ")} (needed by the tests of the edge) ...`)
  if (!lacking.every((name) => installPackage(name)))
    say(`The tests of the edge will fail. To get what they need: apt-get install -y ${lacking.join(" ")}`)
}
