/**
 * The checksums of PostgreSQL's pages, computed over the files of a server that is stopped. They tell what a copy
 * cannot: whether the pages were sound when they were written.
 * (The algorithm is that of PostgreSQL's `storage/checksum_impl.h`: 32 FNV-1a sums side by side.)
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"

const pageSize = 8_192
const pagesPerFile = 131_072
const pagesAtOnce = 64
const lanes = 32
const prime = 16_777_619
const offsets = Uint32Array.of(
  0x5b1f36e9,
  0xb8525960,
  0x02ab50aa,
  0x1de66d2a,
  0x79ff467a,
  0x9bb9f8a3,
  0x217e7cd2,
  0x83e13d2c,
  0xf8d4474f,
  0xe39eb970,
  0x42c6ae16,
  0x993216fa,
  0x7b093b5d,
  0x98daff3c,
  0xf718902a,
  0x0b1c9cdb,
  0xe58f764b,
  0x187636bc,
  0x5d7b3bb1,
  0xe73de7de,
  0x92bec979,
  0xcca6c0b2,
  0x304a0979,
  0x85aa43d4,
  0x783125bb,
  0x6ca8eaa2,
  0xe407eac6,
  0x4b5cfc3e,
  0x9fbf8c76,
  0x15ca20be,
  0xf2ca9fd3,
  0x959bd756
)

/** Of a page whose own checksum is not counted. `words` are the page's. */
const checksumOf = (words: Uint32Array, block: number): number => {
  const sums = Uint32Array.from(offsets)
  for (let at = 0; at < words.length; at += lanes) {
    for (let lane = 0; lane < lanes; lane++) {
      const mixed = (sums[lane] ?? 0) ^ (words[at + lane] ?? 0)
      sums[lane] = Math.imul(mixed, prime) ^ (mixed >>> 17)
    }
  }
  let result = 0
  for (let lane = 0; lane < lanes; lane++) {
    let sum = sums[lane] ?? 0
    for (let round = 0; round < 2; round++) sum = Math.imul(sum, prime) ^ (sum >>> 17)
    result ^= sum
  }
  return (((result ^ block) >>> 0) % 65_535) + 1
}

/** Whether a page says of itself what is in it. A page that was never used says nothing. */
const isSound = (page: Buffer, block: number): boolean => {
  if (page.readUInt16LE(14) === 0) return page.every((byte) => byte === 0)
  const said = page.readUInt16LE(8)
  // A copy in memory of its own: words must begin at a multiple of four.
  const words = new Uint32Array(pageSize / 4)
  new Uint8Array(words.buffer).set(page)
  words[2] = (words[2] ?? 0) & 0xffff_0000
  return checksumOf(words, block) === said
}

const relation = /^\d+(_(?:fsm|vm|init))?(?:\.(\d+))?$/

/** Looks at every page of every relation; answers the first that is damaged, and how many it looked at. */
export const checkPages = async (
  data: string,
  signal: AbortSignal,
  onRead: (bytes: number) => void
): Promise<{ readonly pages: number; readonly damaged: string | undefined }> => {
  let pages = 0
  const bases = await fs.readdir(path.join(data, "base"))
  for (const folder of ["global", ...bases.map((name) => `base/${name}`)]) {
    for (const name of await fs.readdir(path.join(data, folder))) {
      const match = relation.exec(name)
      if (match === null) continue
      const first = Number(match[2] ?? 0) * pagesPerFile
      const handle = await fs.open(path.join(data, folder, name), "r")
      try {
        const buffer = Buffer.alloc(pageSize * pagesAtOnce)
        for (let block = first; ; ) {
          signal.throwIfAborted()
          const { bytesRead } = await handle.read(buffer, 0, buffer.length, (block - first) * pageSize)
          if (bytesRead === 0) break
          if (bytesRead % pageSize !== 0) return { pages, damaged: `${folder}/${name}: its last page is cut` }
          for (let at = 0; at < bytesRead; at += pageSize, block++, pages++) {
            if (!isSound(buffer.subarray(at, at + pageSize), block)) {
              return { pages, damaged: `${folder}/${name}: page ${block - first}` }
            }
          }
          onRead(bytesRead)
        }
      } finally {
        await handle.close()
      }
    }
  }
  return { pages, damaged: undefined }
}
