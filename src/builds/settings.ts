import * as Config from "effect/Config"
import { atLeastOne, optional } from "#src/settings.ts"

export const settings = Config.all({
  /** Image that apps are built in and run on; it has Node, npm and a shell. Absent: nothing is built. */
  buildImage: optional("SVC_BUILD_IMAGE"),
  /** MiB of one upload. */
  uploadMb: atLeastOne("SVC_UPLOAD_MB", 256),
  /** MiB of all uploads that wait for their build on this host. */
  uploadsMb: atLeastOne("SVC_UPLOADS_MB", 10_240),
  /** MiB of what builds have fetched that are kept for the next ones, on this host. */
  cachesMb: atLeastOne("SVC_BUILD_CACHES_MB", 10_240),
  /** MiB that have to be free on the disk for anything to be uploaded or built. */
  floorMb: atLeastOne("SVC_BUILD_FREE_MB", 4_096)
})
