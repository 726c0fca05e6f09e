/** How a folder of source becomes an app: what is found out from its files, shown before a build, and kept with it. */
import * as Schema from "effect/Schema"

const Step = Schema.Struct({
  name: Schema.Literals(["install", "build", "prune"]),
  /** For a POSIX shell. */
  command: Schema.String,
  /** Where it is run, relative to the source. */
  folder: Schema.String
})

const parts = {
  steps: Schema.Array(Step),
  /** What whoever deploys should know. */
  warnings: Schema.Array(Schema.String)
}

/** A program that listens on `PORT`. */
export const ServerPlan = Schema.Struct({
  kind: Schema.Literal("server"),
  ...parts,
  /** Folder that it is started in, relative to the source. */
  root: Schema.String,
  /** For a POSIX shell. */
  start: Schema.String
}).annotate({ identifier: "ServerPlan" })

/** Files that a server of the platform's answers with. */
export const StaticPlan = Schema.Struct({
  kind: Schema.Literal("static"),
  ...parts,
  /** Folder of the files, relative to that of the source. */
  output: Schema.String,
  /** Whether paths without a file are answered with `index.html`, as single-page apps need it. */
  fallback: Schema.Boolean
}).annotate({ identifier: "StaticPlan" })

export const BuildPlan = Schema.Union([ServerPlan, StaticPlan]).annotate({ identifier: "BuildPlan" })
export type BuildPlan = typeof BuildPlan.Type
