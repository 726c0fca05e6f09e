/** What the instructions of a stage come to on an image: variables put in, folders made absolute. Pure. */
import * as path from "node:path"
import type { DockerfileStage } from "#schemas/build-plan.ts"
import type { ImageDefaults } from "#src/infra/containers/image-defaults.ts"
import { expand } from "./expand.ts"

/** What containers are started with. */
type Start = Omit<ImageDefaults, "volumes">

type CopyInstruction = Extract<DockerfileStage["instructions"][number], { readonly do: "copy" }>

export type Operation =
  | {
      readonly do: "run"
      readonly line: number
      readonly command: ReadonlyArray<string>
      readonly env: Readonly<Record<string, string>>
      /** Variables that the container has and that are set by a later line only. */
      readonly unset: ReadonlyArray<string>
      readonly user: string
      readonly workdir: string
    }
  | { readonly do: "folder"; readonly line: number; readonly path: string }
  | {
      readonly do: "copy"
      readonly line: number
      readonly from: CopyInstruction["from"]
      /** Without a slash at the beginning. */
      readonly sources: ReadonlyArray<string>
      readonly target: string
      /** The target is a folder that things are put into. */
      readonly isFolder: boolean
      readonly owner: string | null
    }

export interface Resolved {
  readonly operations: ReadonlyArray<Operation>
  /** What containers of the result are started with. */
  readonly result: Start
}

/**
 * Throws `TooLong`. `given`: values of build arguments. An `ARG` of that name takes its value for the commands and for `ENV`;
 * where a log or an error would show it, in the names of files, folders and users, it has the value that stands there.
 */
export const resolve = (
  { instructions }: DockerfileStage,
  image: Start,
  given: Readonly<Record<string, string>> = {}
): Resolved => {
  const env = new Map(Object.entries(image.env))
  const shownEnv = new Map(env)
  // A name may be one that every object has, such as `constructor`.
  const givenValues = new Map(Object.entries(given))
  const args = new Map<string, string>()
  const shownArgs = new Map<string, string>()
  const set = new Set<string>()
  let { user, workdir, entrypoint, cmd } = image
  if (workdir === "") workdir = "/"
  const value = (text: string) => expand(text, new Map([...args, ...env]))
  const shown = (text: string) => expand(text, new Map([...shownArgs, ...shownEnv]))
  const operations: Array<Operation> = []
  for (const one of instructions) {
    switch (one.do) {
      case "env":
        // Within a line, values are those from before it.
        for (const [name, text, plain] of one.values.map(
          (pair) => [pair.name, value(pair.value), shown(pair.value)] as const
        )) {
          env.set(name, text)
          shownEnv.set(name, plain)
          set.add(name)
        }
        break
      case "arg":
        for (const pair of one.values) {
          args.set(pair.name, givenValues.get(pair.name) ?? value(pair.value))
          shownArgs.set(pair.name, shown(pair.value))
        }
        break
      case "workdir":
        workdir = path.posix.resolve(workdir, shown(one.folder))
        operations.push({ do: "folder", line: one.line, path: workdir })
        break
      case "user":
        user = shown(one.user)
        break
      case "entrypoint":
        entrypoint = one.command
        // The command of the image was for its own one.
        cmd = []
        break
      case "cmd":
        cmd = one.command
        break
      case "run":
        operations.push({
          do: "run",
          line: one.line,
          command: one.command,
          env: Object.fromEntries([...args, ...env]),
          unset: [],
          user,
          workdir
        })
        break
      case "copy": {
        const target = shown(one.target)
        operations.push({
          do: "copy",
          line: one.line,
          from: one.from,
          sources: one.sources.map((source) => path.posix.normalize(shown(source)).replace(/^\/+|\/+$/g, "")),
          target: path.posix.resolve(workdir, target),
          isFolder: one.sources.length > 1 || /(^|\/)\.{0,2}$/.test(target),
          owner: one.owner === null ? null : shown(one.owner)
        })
      }
    }
  }
  const inherited = new Set(Object.keys(image.env))
  const later = (known: Readonly<Record<string, string>>) =>
    [...set].filter((name) => !inherited.has(name) && !Object.hasOwn(known, name))
  return {
    operations: operations.map((one) => (one.do === "run" ? { ...one, unset: later(one.env) } : one)),
    result: { env: Object.fromEntries(env), user, workdir, entrypoint, cmd }
  }
}
