/** Files of containers: into one, from one into another, and all of one as an image. */
import * as fs from "node:fs"
import { Readable, Transform } from "node:stream"
import { pipeline } from "node:stream/promises"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Call } from "./calls.ts"
import { ContainerError } from "./error.ts"

/** Where in which container. */
export interface ContainerPlace {
  readonly name: string
  /** Absolute path of a folder that is there. */
  readonly folder: string
}

export const makeArchives = (call: Call) => {
  const put = ({ name, folder }: ContainerPlace, archive: () => NodeJS.ReadableStream) =>
    call(
      "Copying files into the container",
      async (docker, abortSignal) => {
        await docker.getContainer(name).putArchive(archive(), { path: folder, abortSignal })
      },
      "10 minutes"
    )

  return {
    /** What the tar file holds. */
    putFile: (place: ContainerPlace, file: string) => put(place, () => fs.createReadStream(file)),
    /** What the tar archive holds. */
    putArchive: (place: ContainerPlace, archive: Buffer) => put(place, () => Readable.from([archive])),
    /** Writes a file, or a folder with all that is in it, into a tar file; fails if that is more than `mostBytes`. */
    take: (name: string, path: string, file: string, mostBytes: number) =>
      call(
        "Copying files out of the container",
        async (docker, signal) => {
          const source = await docker.getContainer(name).getArchive({ path, abortSignal: signal })
          await pipeline(source, bounded(mostBytes), fs.createWriteStream(file, { mode: 0o600 }), { signal })
        },
        "10 minutes"
      ),
    /** What is in a folder of one goes into a folder of the other, with owners and rights; fails if that is more than `mostBytes`. */
    copy: (from: ContainerPlace, to: ContainerPlace, mostBytes: number) =>
      call(
        "Copying files between containers",
        async (docker, abortSignal) => {
          const source = await docker
            .getContainer(from.name)
            .getArchive({ path: `${from.folder}/.`, abortSignal })
          const measured = bounded(mostBytes)
          source.once("error", (error) => measured.destroy(error))
          source.pipe(measured)
          // The engine's answer to an archive that breaks off says less than why it does.
          const failed = new Promise<never>((_, reject) => measured.once("error", reject))
          try {
            const taken = docker.getContainer(to.name).putArchive(measured, { path: to.folder, abortSignal })
            taken.catch(() => undefined)
            await Promise.race([taken, failed])
          } finally {
            if (source instanceof Readable) source.destroy()
          }
        },
        "10 minutes"
      ),
    /** All of it, under a name `repository:tag`, with another command if one is given. Answers the image's id. */
    commit: (name: string, image: string, command?: ReadonlyArray<string>) =>
      call(
        "Making an image of the container",
        async (docker, abortSignal) => {
          const colon = image.lastIndexOf(":")
          await docker.getContainer(name).commit({
            repo: image.slice(0, colon),
            tag: image.slice(colon + 1),
            pause: false,
            ...(command === undefined ? {} : { changes: `ENTRYPOINT ${JSON.stringify(command)}` }),
            abortSignal
          })
          const { Id } = await docker.getImage(image).inspect()
          return Id
        },
        "10 minutes"
      ),
    /** Id of the image of that name, if this host has it. */
    findImage: (name: string) =>
      call("Looking for an image", (docker) => docker.getImage(name).inspect()).pipe(
        Effect.map(({ Id }) => Option.some(Id)),
        Effect.catchIf(
          ({ reason }) => reason === "NotFound",
          () => Effect.succeed(Option.none<string>())
        )
      )
  }
}

const bounded = (mostBytes: number) => {
  let bytes = 0
  return new Transform({
    transform(chunk: Buffer, _, done) {
      bytes += chunk.length
      done(bytes > mostBytes ? tooMuch(mostBytes) : null, chunk)
    }
  })
}

const tooMuch = (bytes: number) =>
  new ContainerError({ reason: "Failed", message: `There are more than ${bytes} bytes to copy` })
