/** How a folder of source becomes an app: what is found out from its files, shown before a build, and kept with it. */
import * as Schema from "effect/Schema"

const Step = Schema.Struct({
  name: Schema.Literals(["install", "build", "prune"]),
  /** For a POSIX shell. */
  command: Schema.String,
  /** Where it is run, relative to the source. */
  folder: Schema.String
})

export const runtimes = ["node", "python", "go"] as const

/** What the steps and the app need of the image that they run in. */
const Runtime = Schema.Struct({
  name: Schema.Literals(runtimes),
  /** A range of versions as npm writes them; null: whichever is there. */
  versions: Schema.NullOr(Schema.String),
  /** What says so, for people: the name of a file or of a setting. */
  saidBy: Schema.NullOr(Schema.String)
})
export type Runtime = typeof Runtime.Type

const parts = {
  steps: Schema.Array(Step),
  /** Left out: Node, of any version. */
  runtime: Schema.optionalKey(Runtime),
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

const line = { line: Schema.Int }
const pairs = Schema.Array(Schema.Struct({ name: Schema.String, value: Schema.String }))
const command = Schema.Array(Schema.String)

/** What is done in a stage of a Dockerfile, with the line that says so. Variables are written as they stand there. */
const Instruction = Schema.Union([
  Schema.Struct({ do: Schema.Literals(["run", "cmd", "entrypoint"]), ...line, command }),
  Schema.Struct({ do: Schema.Literals(["env", "arg"]), ...line, values: pairs }),
  Schema.Struct({ do: Schema.Literal("workdir"), ...line, folder: Schema.String }),
  Schema.Struct({ do: Schema.Literal("user"), ...line, user: Schema.String }),
  Schema.Struct({
    do: Schema.Literal("copy"),
    ...line,
    /** Null: the source itself. */
    from: Schema.NullOr(
      Schema.Union([Schema.Struct({ stage: Schema.Int }), Schema.Struct({ image: Schema.String })])
    ),
    sources: Schema.Array(Schema.String),
    target: Schema.String,
    owner: Schema.NullOr(Schema.String)
  })
])
const DockerfileStage = Schema.Struct({
  /** Name of the image that it begins with. */
  from: Schema.String,
  instructions: Schema.Array(Instruction)
})
export type DockerfileStage = typeof DockerfileStage.Type

/** By a Dockerfile; the last stage becomes the image. */
export const DockerfilePlan = Schema.Struct({
  kind: Schema.Literal("dockerfile"),
  steps: parts.steps,
  warnings: parts.warnings,
  /** Folder that files are copied from, relative to the source. */
  root: Schema.String,
  stages: Schema.Array(DockerfileStage),
  /** Text of `.dockerignore`. */
  ignored: Schema.String
}).annotate({ identifier: "DockerfilePlan" })
export type DockerfilePlan = typeof DockerfilePlan.Type

export const BuildPlan = Schema.Union([ServerPlan, StaticPlan, DockerfilePlan]).annotate({
  identifier: "BuildPlan"
})
export type BuildPlan = typeof BuildPlan.Type
