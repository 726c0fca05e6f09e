import * as Config from "effect/Config"
import { atLeastOne } from "#src/settings.ts"
import { upstreamsOf } from "./runtime/upstreams-file.ts"

/** The operator's upstreams, and how much one gateway and one key may ask of them. */
export const settings = Config.all({
  upstreams: upstreamsOf("SVC_AI_UPSTREAMS"),
  /** Calls a minute, over all processes. */
  gatewayRate: atLeastOne("SVC_AI_GATEWAY_RATE_LIMIT", 1_200),
  keyRate: atLeastOne("SVC_AI_KEY_RATE_LIMIT", 600),
  /** Calls at once in one process. */
  gatewayConcurrency: atLeastOne("SVC_AI_GATEWAY_CONCURRENCY", 200),
  keyConcurrency: atLeastOne("SVC_AI_KEY_CONCURRENCY", 100)
})
