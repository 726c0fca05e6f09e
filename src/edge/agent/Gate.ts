/**
 * Who is let through to an environment that is not for everybody, where HAProxy found no valid ticket. The feature that
 * knows visitors provides it; without one nobody is let through.
 */
import type { IncomingHttpHeaders } from "node:http"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type { AccessMode } from "../target.ts"

/** A request as HAProxy handed it to the agent. */
export interface EdgeRequest {
  readonly method: string
  /** Path and query, as they were sent. */
  readonly url: string
  /** Lower case, without port. */
  readonly host: string
  /** Address of the visitor. */
  readonly client: string
  readonly scheme: "http" | "https"
  /** As they came, with neither `X-Svc-*` nor `X-Forwarded-*` of a visitor. */
  readonly headers: IncomingHttpHeaders
  /** It asks for another protocol, such as WebSocket. */
  readonly upgrade: boolean
}

export interface GatedRequest extends EdgeRequest {
  readonly orgId: string
  readonly environmentUid: string
  readonly access: AccessMode
  /** Reads the whole body; undefined: it is longer than `most` bytes, or breaks off. Who reads it sends it on. */
  readonly body: (most: number) => Effect.Effect<Buffer | undefined>
}

export interface EdgeAnswer {
  readonly _tag: "Answer"
  readonly status: number
  readonly headers?: Readonly<Record<string, string | ReadonlyArray<string>>>
  readonly body?: string
}

/** The request goes on to the app, through HAProxy, which judges it again. */
export interface Forward {
  readonly _tag: "Forward"
  /** In place of the request's own `Cookie`, such as with a fresh ticket. */
  readonly cookie?: string
  /** What was read of the body: all of it. */
  readonly body?: Buffer
  /** Added to the app's answer. */
  readonly setCookies?: ReadonlyArray<string>
}

export interface Gate {
  /** For an environment that is not `public`. */
  readonly judge: (request: GatedRequest) => Effect.Effect<EdgeAnswer | Forward>
  /** For paths below `/.svc/`, of any environment: the way back from signing in. */
  readonly own: (request: GatedRequest) => Effect.Effect<EdgeAnswer>
}

export const Gate = Context.Reference<Gate>("svc/edge/Gate", {
  defaultValue: () => ({
    judge: () =>
      Effect.succeed({
        _tag: "Answer" as const,
        status: 401,
        headers: { "cache-control": "no-store" },
        body: "You have to sign in to see this.\n"
      }),
    own: () => Effect.succeed({ _tag: "Answer" as const, status: 404, body: "There is nothing here.\n" })
  })
})
