import * as os from "node:os"
import * as Config from "effect/Config"
import * as Schema from "effect/Schema"
import { atLeastOne, list, optional } from "#src/settings.ts"

/** Those that most people use. */
const defaultRegistries =
  "docker.io,ghcr.io,quay.io,gcr.io,registry.gitlab.com,public.ecr.aws,*.dkr.ecr.*.amazonaws.com,*.pkg.dev,*.azurecr.io"

/** At least one: what was fetched a moment ago may be about to be used. */
const Days = Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 1, maximum: 3650 }))

/** What executions may have of the machine: a quarter is left to everything else. */
const mostMemoryMb = Math.max(512, Math.floor((os.totalmem() / 1024 / 1024) * 0.75))

export const settings = Config.all({
  /** Registries that may be given credentials; `*` stands for (a part of) one label. */
  registries: Config.String("SVC_REGISTRIES").pipe(Config.withDefault(defaultRegistries), Config.map(list)),
  /** Runtime of the engine in which containers may hold containers. Absent: none may. */
  sandboxRuntime: optional("SVC_SANDBOX_RUNTIME"),
  /** Days that executions are kept once they have ended. */
  keptDays: Config.Int("SVC_EXECUTION_RETENTION_DAYS").pipe(Config.withDefault(30)),
  /** Days that an image fetched for executions is kept once none has asked for it. */
  imageDays: Config.schema(Days, "SVC_EXECUTION_IMAGE_DAYS").pipe(Config.withDefault(7)),
  /** Memory of this host that all executions may have together. */
  memoryMb: atLeastOne("SVC_EXECUTION_MEMORY_MB", mostMemoryMb),
  /** Executions of one organization that may not have ended at once. */
  orgExecutions: atLeastOne("SVC_ORG_EXECUTIONS", 100)
})
