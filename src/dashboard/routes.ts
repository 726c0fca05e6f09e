/**
 * `/app/`: one page for every address below it, which shows what the address names, and its assets. The page is asked
 * for each time; assets have their digest in their names and are kept for ever.
 */
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerRequest from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import { acceptedEncoding } from "#src/api/accepted-encoding.ts"
import { AppConfig } from "#src/config.ts"
import { pathPrefix } from "#src/identity/pages/path-prefix.ts"
import { type Built, readBuilt } from "./files.ts"

/**
 * Scripts and styles of our own files only, requests to this server only, in no frame, and no string becomes a script:
 * one policy makes the addresses of workers.
 */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "worker-src 'self'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'self'",
  "require-trusted-types-for 'script'",
  "trusted-types svc"
].join("; ")

const headers = {
  "content-security-policy": policy,
  "referrer-policy": "same-origin",
  "x-frame-options": "DENY",
  "cross-origin-opener-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=()"
}

const notBuilt = HttpServerResponse.text(
  "<!doctype html><title>Not built</title><p>The dashboard is not built: <code>npm run build:web</code> builds it. Start the control plane again then.",
  {
    status: 503,
    contentType: "text/html; charset=utf-8",
    headers: { ...headers, "cache-control": "no-store" }
  }
)

const asset = (built: Built, name: string, acceptEncoding: string | undefined) => {
  const found = built.assets.get(name)
  // After an update an open page may ask for what the build before had; it loads itself again then.
  if (found === undefined)
    return HttpServerResponse.empty({ status: 404, headers: { ...headers, "cache-control": "no-store" } })
  const accepted = acceptedEncoding(acceptEncoding)
  const compressed = found.forms[accepted]
  return HttpServerResponse.uint8Array(compressed ?? found.forms.identity, {
    contentType: found.contentType,
    headers: {
      ...headers,
      "cache-control": "public, max-age=31536000, immutable",
      vary: "accept-encoding",
      ...(compressed === undefined || accepted === "identity" ? {} : { "content-encoding": accepted })
    }
  })
}

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const { publicUrl } = yield* AppConfig
    const base = `${pathPrefix(publicUrl)}/app/`
    const built = yield* Effect.promise(() => readBuilt(base))
    const serve = Effect.map(HttpServerRequest.HttpServerRequest, ({ url, headers: asked }) => {
      if (built === undefined) return notBuilt
      const path = url.split("?", 1)[0] ?? ""
      if (path === "/app") return HttpServerResponse.redirect(base, { status: 308 })
      const name = path.slice("/app/".length)
      if (name.startsWith("assets/")) return asset(built, name, asked["accept-encoding"])
      return HttpServerResponse.uint8Array(built.page, {
        contentType: "text/html; charset=utf-8",
        headers: { ...headers, etag: built.pageTag, "cache-control": "no-cache" }
      })
    })
    // The pattern takes `/app` too.
    return HttpRouter.add("GET", "/app/*", serve)
  })
)
