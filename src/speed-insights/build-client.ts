/**
 * `node src/speed-insights/build-client.ts`: makes the files that pages load, which are checked in beside their source. A
 * test holds them against the source.
 */
import * as fs from "node:fs/promises"
import { rolldown } from "rolldown"

const folder = new URL("client/", import.meta.url)
const notice = "/*! web-vitals: Google LLC, Apache-2.0 */\n"

const bundled = async (source: string, format: "iife" | "esm", external: ReadonlyArray<string>) => {
  const bundle = await rolldown({
    input: new URL(source, folder).pathname,
    platform: "browser",
    external: [...external],
    logLevel: "silent",
    tsconfig: false,
    transform: { target: "es2022" }
  })
  const { output } = await bundle.generate({ format, minify: format === "iife", comments: format !== "iife" })
  await bundle.close()
  return output[0].code
}

/** Their content by name: the program for a script element, and the module for bundlers. */
export const clientFiles = async (): Promise<Readonly<Record<"client.js" | "index.js", string>>> => ({
  "client.js": notice + (await bundled("page.ts", "iife", [])),
  "index.js": await bundled("start.ts", "esm", ["web-vitals"])
})

if (import.meta.main) {
  for (const [name, code] of Object.entries(await clientFiles()))
    await fs.writeFile(new URL(name, folder), code)
}
