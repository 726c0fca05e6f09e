/**
 * How much of the disk servers use, and how full it is. The first takes a walk through every folder, by a program that is
 * made for it and at the lowest priority: each server's turn comes every five minutes, or when it is new. The second is
 * one question for each file system and is put at every look, because a disk can fill in a minute.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { Host } from "#src/infra/host/Host.ts"
import { known } from "./usage.ts"

const walkEveryMs = 300_000
/** Folders of one walk: what it prints about them is far shorter than the host lets programs print. */
const atOnce = 200
const walkTimeoutMs = 120_000
const questionTimeout = "2 seconds"

interface Walked {
  readonly at: number
  readonly usedBytes: number | undefined
  /** The file system, and a folder in it. */
  readonly device: number
  readonly folder: string
}
interface Space {
  /** For data: what is used and what is free for a user without privileges. */
  readonly sizeBytes: number
  readonly usedBytes: number
}

export const makeDisks = (host: Pick<Host["Service"], "run">) => {
  let walked: ReadonlyMap<string, Walked> = new Map()
  /** File systems that have not answered yet: one that hangs takes one thread of this process, and not all. */
  const asked = new Set<number>()

  /** The folder, and where the data are on another disk, their folder there. */
  const placesOf = async (folder: string) => {
    const data = path.join(folder, "data")
    const real = await fs.realpath(data).catch(() => data)
    const elsewhere = path.relative(await fs.realpath(folder).catch(() => folder), real).startsWith("..")
    const { dev } = await fs.stat(elsewhere ? real : folder)
    return { device: dev, folder, all: elsewhere ? [folder, real] : [folder] }
  }

  const walk = Effect.fnUntraced(function* (folders: ReadonlyMap<string, string>) {
    const now = yield* Clock.currentTimeMillis
    const due = [...folders]
      .filter(([key]) => now - (walked.get(key)?.at ?? Number.NEGATIVE_INFINITY) >= walkEveryMs)
      .slice(0, atOnce)
    const places = yield* Effect.forEach(due, ([key, folder]) =>
      Effect.promise(() =>
        placesOf(folder).then(
          (found) => ({ key, ...found }),
          () => undefined
        )
      )
    )
    const there = places.filter((one) => one !== undefined)
    const bytes = new Map<string, number>()
    if (there.length > 0) {
      // Files that go meanwhile make it fail, and all else it has told. Links that are named are followed (-D).
      const { output } = yield* host.run(
        "nice",
        ["-n", "19", "du", "-skD", "--", ...there.flatMap(({ all }) => all)],
        { timeoutMs: walkTimeoutMs }
      )
      for (const [, blocks, folder = ""] of output.matchAll(/^(\d+)\t(.*)$/gm))
        bytes.set(folder, Number(blocks) * 1024)
    }
    const next = new Map([...walked].filter(([key]) => folders.has(key)))
    for (const { key, device, folder, all } of there) {
      const parts = all.map((one) => bytes.get(one))
      const usedBytes = parts.every((one) => one !== undefined)
        ? parts.reduce((sum, one) => sum + one, 0)
        : undefined
      next.set(key, { at: now, usedBytes, device, folder })
    }
    walked = next
  })

  const spaceOf = Effect.fnUntraced(function* (device: number, folder: string) {
    if (asked.has(device)) return undefined
    asked.add(device)
    const answer = fs
      .statfs(folder)
      .then(
        ({ bsize, blocks, bfree, bavail }): Space => ({
          usedBytes: (blocks - bfree) * bsize,
          sizeBytes: (blocks - bfree + bavail) * bsize
        }),
        () => undefined
      )
      .finally(() => asked.delete(device))
    return yield* Effect.promise(() => answer).pipe(
      Effect.timeoutOrElse({ duration: questionTimeout, orElse: () => Effect.undefined })
    )
  })

  return {
    /** Walks through folders whose turn has come, by their keys. */
    walk,
    /** What is known of each of the servers. */
    values: Effect.gen(function* () {
      const devices = new Map([...walked.values()].map(({ device, folder }) => [device, folder]))
      const spaces = new Map(
        yield* Effect.forEach(
          devices,
          ([device, folder]) => Effect.map(spaceOf(device, folder), (space) => [device, space] as const),
          { concurrency: "unbounded" }
        )
      )
      return new Map(
        [...walked].map(([key, { usedBytes, device }]) => {
          const space = spaces.get(device)
          return [
            key,
            known({
              "disk.used_bytes": usedBytes,
              "disk.limit_bytes": space?.sizeBytes,
              "storage.capacity":
                space === undefined || space.sizeBytes === 0
                  ? undefined
                  : (space.usedBytes / space.sizeBytes) * 100
            })
          ] as const
        })
      )
    })
  }
}
