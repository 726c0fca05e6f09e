/** Authorization requests as programs send browsers with them, and the page's form as a browser fills it. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import type { Visitor } from "../identity/visitor.ts"

/** RFC 7636, appendix B. */
export const verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
const challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"

export const callback = "http://127.0.0.1:49152/callback"
export const state = "st/a+te 1"

export const asking = (over: Readonly<Record<string, string>> = {}): string =>
  `/agent/authorize?${new URLSearchParams({
    client_id: "svc-cli",
    redirect_uri: callback,
    response_type: "code",
    code_challenge: challenge,
    code_challenge_method: "S256",
    state,
    scope: "projects.list",
    ...over
  })}`

/** A program that registers itself; answers its id. */
export const register = (name: string, redirects: ReadonlyArray<string>) =>
  Effect.flatMap(Plane, ({ call }) =>
    Effect.map(
      call("POST", "/oauth/register", { token: null, body: { client_name: name, redirect_uris: redirects } }),
      ({ body }): string => body.client_id
    )
  )

/** Sends a browser with a request; answers the address of the page. */
export const begin = Effect.fn(function* (browser: Visitor, over?: Readonly<Record<string, string>>) {
  const begun = yield* browser.get(asking(over))
  assert.strictEqual(begun.status, 303, begun.text)
  assert.match(begun.location ?? "", /^\/agent\/authorize\?pending=[0-9a-f-]{36}$/)
  return begun.location ?? ""
})

/** What the page's form sends besides what is chosen on it. */
export const hiddenOf = (page: string): Record<string, string> =>
  Object.fromEntries(
    [
      ...(page.split('action="/agent/authorize"')[1] ?? "").matchAll(
        /type="hidden" name="(\w+)" value="([^"]*)"/g
      )
    ].map(([, name = "", value = ""]) => [name, value])
  )

/** Where the page after a decision sends the browser on. */
export const onwardOf = (page: string): string | null =>
  /<meta http-equiv="refresh" content="0;url=([^"]*)">/.exec(page)?.[1]?.replaceAll("&amp;", "&") ?? null

/** The answer's address and what it tells the client. */
export const answerOf = (location: string | null): Readonly<Record<string, string>> => {
  const { origin, pathname, searchParams } = new URL(location ?? "none:")
  return { to: `${origin}${pathname}`, ...Object.fromEntries(searchParams) }
}

/** Whether the request of a page's address waits for a decision still. */
export const waits = (page: string) =>
  Effect.flatMap(Plane, ({ sql }) =>
    Effect.map(
      sql(`select 1 from authorization_request where id = '${page.slice(-36)}' and expires_at > now()`),
      (rows) => rows.length === 1
    )
  )
