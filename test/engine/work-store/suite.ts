/**
 * What every implementation of `WorkStore` promises the engine. Postgres keeps these promises in production; the model
 * in memory keeps them in the simulation, which is what makes the simulation worth something.
 *
 * Each test works on kinds and organizations of its own, so they may share one store. Nothing sleeps: time moves when
 * `StoreUnderTest.advance` says so.
 */
import { layer } from "@effect/vitest"
import type * as Layer from "effect/Layer"
import type { WorkStore } from "#src/engine/WorkStore.ts"
import { claimingTests } from "./claiming.ts"
import { interventionTests } from "./interventions.ts"
import { lookTests } from "./looks.ts"
import { resultTests } from "./results.ts"
import type { StoreUnderTest } from "./setting.ts"
import { waitingTests } from "./waiting.ts"

export const workStoreSuite = <E>(
  name: string,
  implementation: Layer.Layer<WorkStore | StoreUnderTest, E>
): void =>
  layer(implementation, { excludeTestServices: true })(`the engine's store ${name}`, (it) => {
    claimingTests(it)
    resultTests(it)
    waitingTests(it)
    interventionTests(it)
    lookTests(it)
  })
