/** Archives as people, and people of bad intent, send them. */
import { createHash } from "node:crypto"
import { buffer } from "node:stream/consumers"
import { type Headers, pack } from "tar-stream"

export type Entry = Headers & {
  readonly content?: string
  readonly pax?: Readonly<Record<string, string>>
}

export const tar = async (...entries: ReadonlyArray<Entry>): Promise<Buffer> => {
  const writer = pack()
  for (const { content, ...header } of entries) writer.entry(header, content ?? "")
  writer.finalize()
  return buffer(writer)
}

export const file = (name: string, content = "", more: Partial<Entry> = {}): Entry => ({
  name,
  content,
  ...more
})
export const folder = (name: string): Entry => ({ name, type: "directory" })
export const link = (name: string, linkname: string): Entry => ({ name, type: "symlink", linkname })

export const digestOf = (content: Buffer) => createHash("sha256").update(content).digest("hex")
