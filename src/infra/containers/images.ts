/** Images of an engine: fetching one, telling which there are, and letting go of one that nothing uses. */
import { text } from "node:stream/consumers"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { Call } from "./calls.ts"
import type { PullRequest } from "./types.ts"

export const makeImages = (call: Call) => {
  const pull = Effect.fnUntraced(function* ({ reference, credentials }: PullRequest, stallMs: number) {
    const what = `Fetching the image ${reference}`
    const authconfig =
      credentials === undefined
        ? {}
        : {
            authconfig: {
              username: credentials.username,
              password: Redacted.value(credentials.password),
              serveraddress: credentials.registry
            }
          }
    yield* call(
      what,
      async (docker, abortSignal) => {
        const stall = new AbortController()
        const timer = setTimeout(() => stall.abort(), stallMs)
        const stopped = AbortSignal.any([abortSignal, stall.signal])
        try {
          const stream = await docker.pull(reference, { ...authconfig, abortSignal: stopped })
          // What goes wrong after the first word is told in the stream.
          await new Promise<void>((resolve, reject) => {
            stopped.addEventListener("abort", () => reject(new Error("stopped")))
            docker.modem.followProgress(
              stream,
              (error, output) => {
                const fault = error ?? output.find((line) => line.error !== undefined)?.error
                if (fault === undefined || fault === null) resolve()
                else
                  reject(
                    Object.assign(new Error(fault instanceof Error ? fault.message : String(fault)), {
                      statusCode: 500
                    })
                  )
              },
              () => timer.refresh()
            )
          })
        } catch (error) {
          if (!stall.signal.aborted) throw error
          throw Object.assign(new Error(`nothing came for ${stallMs / 1_000} s`), { statusCode: 504 })
        } finally {
          clearTimeout(timer)
        }
      },
      "30 minutes"
    )
    const image = yield* call(what, (docker) => docker.getImage(reference).inspect())
    const digest = image.RepoDigests.map((text) => text.split("@")[1]).find((text) => text !== undefined)
    return { id: image.Id, digest: digest ?? null }
  })

  const load = (archive: NodeJS.ReadableStream) =>
    call(
      "Loading an image",
      async (docker, abortSignal) => {
        const answer = await docker.loadImage(archive, { abortSignal })
        // What goes wrong after the first word is told in the answer.
        const said = await text(answer)
        if (/"error(Detail)?":/.test(said)) throw Object.assign(new Error(said), { statusCode: 500 })
      },
      "30 minutes"
    )

  const ids = Effect.map(
    call("Listing images", (docker, abortSignal) => docker.listImages({ all: true, abortSignal })),
    (images): ReadonlySet<string> => new Set(images.map(({ Id }) => bare(Id)))
  )

  const removeImage = Effect.fnUntraced(function* (id: string, isOurs: (name: string) => boolean) {
    const looked = yield* Effect.result(
      call("Looking at an image", (docker) => docker.getImage(id).inspect())
    )
    if (looked._tag === "Failure")
      return looked.failure.reason === "NotFound" ? ("gone" as const) : yield* looked.failure
    const tags = looked.success.RepoTags ?? []
    const ours = tags.filter(isOurs)
    const isKept = ours.length < tags.length
    const names = isKept ? ours : ours.length > 1 ? [...ours, id] : [id]
    for (const name of names) {
      const done = yield* Effect.result(
        call("Removing an image", (docker, abortSignal) =>
          docker.getImage(name).remove({ force: false, abortSignal })
        )
      )
      if (done._tag === "Success") continue
      const { reason, message } = done.failure
      if (reason === "NotFound") continue
      if (reason === "Conflict" || /in use|being used|has (dependent )?child/i.test(message))
        return "used" as const
      return yield* done.failure
    }
    return isKept ? ("kept" as const) : ("gone" as const)
  })

  return { pull, load, ids, removeImage }
}

/** Docker writes the algorithm before it, Podman does not. */
const bare = (id: string) => id.replace(/^sha256:/, "")
