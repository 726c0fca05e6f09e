/** The browser that pages are tested in. */
import * as fs from "node:fs"
import { installPackage } from "#src/infra/host/setup.ts"

const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]

export const browserPath = (): string | undefined => places.find((place) => fs.existsSync(place))

/** As with what the platform itself needs: installed where that is allowed, else said. */
export const setUpBrowser = (say: (line: string) => void): void => {
  if (browserPath() !== undefined) return
  say("Installing chromium (needed by the tests of pages) ...")
  if (!installPackage("chromium"))
    say("chromium is missing; the tests of pages are skipped. To get it: apt-get install -y chromium")
}
