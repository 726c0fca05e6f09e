import * as Config from "effect/Config"
import { atLeastOne } from "#src/settings.ts"
import { BaseImages, baseImagesOf, defaultBaseImages } from "./base-images.ts"

export const settings = Config.all({
  /** Images that apps are built in and run on. None: nothing is built. */
  buildImages: Config.schema(BaseImages, "SVC_BUILD_IMAGE").pipe(
    Config.withDefault(defaultBaseImages),
    Config.map(baseImagesOf)
  ),
  /** MiB of one upload. */
  uploadMb: atLeastOne("SVC_UPLOAD_MB", 256),
  /** MiB of all uploads that wait for their build on this host. */
  uploadsMb: atLeastOne("SVC_UPLOADS_MB", 10_240),
  /** MiB of what builds have fetched that are kept for the next ones, on this host. */
  cachesMb: atLeastOne("SVC_BUILD_CACHES_MB", 10_240),
  /** MiB that have to be free on the disk for anything to be uploaded or built. */
  floorMb: atLeastOne("SVC_BUILD_FREE_MB", 4_096)
})
