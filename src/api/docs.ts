/**
 * The documentation of the API as a page. It is made once, with its script inside, so that it reads well without the
 * internet; compressed it is a quarter as long.
 */
import { createHash } from "node:crypto"
import { promisify } from "node:util"
import { brotliCompress, constants, gzip } from "node:zlib"
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiScalar from "effect/http-api/HttpApiScalar"
import { acceptedEncoding, type Encoding } from "./accepted-encoding.ts"
import { Api } from "./definition/api.ts"
import { madeOnce } from "./made-once.ts"

interface Form {
  readonly etag: string
  readonly encoding: string | undefined
  readonly body: Uint8Array
}

const brotli = promisify(brotliCompress)
const zip = promisify(gzip)
const digest = (content: string | Uint8Array) => createHash("sha256").update(content).digest("base64")

/** The page's own scripts and no others; requests go to this server only. */
const policyOf = (html: string): string => {
  const scripts = [...html.matchAll(/<script>([\s\S]*?)<\/script>/g)].map(
    ([, script = ""]) => `'sha256-${digest(script)}'`
  )
  return [
    "default-src 'none'",
    `script-src ${scripts.join(" ")}`,
    "style-src 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src data:",
    "connect-src 'self'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "base-uri 'none'"
  ].join("; ")
}

const formsOf = async (page: Uint8Array) => {
  const html = Buffer.from(page)
  const tag = digest(html).slice(0, 22)
  const compressed = await brotli(html, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: 6,
      [constants.BROTLI_PARAM_SIZE_HINT]: html.length
    }
  })
  const forms: Readonly<Record<Encoding, Form>> = {
    br: { etag: `"${tag}-br"`, encoding: "br", body: compressed },
    gzip: { etag: `"${tag}-gz"`, encoding: "gzip", body: await zip(html) },
    identity: { etag: `"${tag}"`, encoding: undefined, body: html }
  }
  return { forms, policy: policyOf(html.toString("utf8")) }
}

const page = HttpApiScalar.layer(Api, { path: "/docs", scalar: { withDefaultFonts: false } })

/** Whoever asks first has it made: its script is as long as a third of the program, and compressing takes half a second. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const made = yield* madeOnce(
      Effect.flatten(HttpRouter.toHttpEffect(page)).pipe(
        Effect.flatMap(({ body }) =>
          body._tag === "Uint8Array"
            ? Effect.promise(async () => ({ ...(await formsOf(body.body)), contentType: body.contentType }))
            : Effect.die(new Error("The page of the documentation is no text"))
        ),
        Effect.orDie,
        Effect.scoped
      )
    )
    yield* router.add(
      "GET",
      "/docs",
      Effect.fnUntraced(function* (request) {
        const { forms, policy, contentType } = yield* made
        const { etag, encoding, body } = forms[acceptedEncoding(request.headers["accept-encoding"])]
        return HttpServerResponse.uint8Array(body, {
          contentType,
          headers: {
            etag,
            vary: "accept-encoding",
            "cache-control": "no-cache",
            "content-security-policy": policy,
            "referrer-policy": "no-referrer",
            ...(encoding === undefined ? {} : { "content-encoding": encoding })
          }
        })
      })
    )
  })
)
