/** Git connections, git sources, previews and deployments of commits from the command line. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "./control-plane.ts"

/** Nobody is at the forge, nothing can be built, and looks come when they are asked for. */
const world = signedIn(
  { containerSocket: "/nonexistent/engine.sock", outboundAllow: [] },
  { SVC_BUILD_IMAGE: "localhost/none:1", SVC_GIT_POLL_SECONDS: "3600" }
)
