/** Settles the calls of processes that died. */
import * as Layer from "effect/Layer"
import { periodic } from "#src/loops/periodic.ts"
import { sweep } from "./Ledger.ts"

export const layer = Layer.effectDiscard(periodic({ does: "settle lost calls", every: "15 seconds" }, sweep))
