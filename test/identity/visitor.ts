/** A browser without a screen: keeps cookies, sends forms as browsers do, follows nothing by itself. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

export interface Seen {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
  readonly body: any
  readonly location: string | null
  readonly setCookies: ReadonlyArray<string>
}

export interface Visitor {
  readonly cookies: Map<string, string>
  readonly get: (target: string, headers?: Record<string, string>) => Effect.Effect<Seen>
  /** A form of our own pages, unless `headers` say otherwise. */
  readonly post: (
    target: string,
    fields: Record<string, string>,
    headers?: Record<string, string>
  ) => Effect.Effect<Seen>
  readonly json: (
    method: string,
    target: string,
    body?: unknown,
    headers?: Record<string, string>
  ) => Effect.Effect<Seen>
}

export const visitor = Effect.gen(function* () {
  const { url } = yield* Plane
  const cookies = new Map<string, string>()
  const send = (method: string, target: string, headers: Record<string, string>, body?: string) =>
    Effect.promise(async (): Promise<Seen> => {
      const response = await fetch(new URL(target, url), {
        method,
        redirect: "manual",
        signal: AbortSignal.timeout(90_000),
        headers: {
          ...(cookies.size === 0
            ? {}
            : { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") }),
          ...headers
        },
        ...(body === undefined ? {} : { body })
      })
      const setCookies = response.headers.getSetCookie()
      for (const cookie of setCookies) {
        const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(cookie) ?? []
        if (/;\s*max-age=0/i.test(cookie)) cookies.delete(name)
        else cookies.set(name, value)
      }
      const text = await response.text()
      const isJson = response.headers.get("content-type")?.includes("json") === true
      return {
        status: response.status,
        headers: response.headers,
        text,
        body: isJson ? JSON.parse(text) : undefined,
        location: response.headers.get("location"),
        setCookies
      }
    })
  const self: Visitor = {
    cookies,
    get: (target, headers = {}) => send("GET", target, headers),
    post: (target, fields, headers) =>
      send(
        "POST",
        target,
        {
          "content-type": "application/x-www-form-urlencoded",
          ...(headers ?? { origin: url, "sec-fetch-site": "same-origin" })
        },
        new URLSearchParams(fields).toString()
      ),
    json: (method, target, body, headers) =>
      send(
        method,
        target,
        {
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...(headers ?? { origin: url, "sec-fetch-site": "same-origin" })
        },
        body === undefined ? undefined : JSON.stringify(body)
      )
  }
  return self
})

export interface Letter {
  readonly subject: string
  readonly text: string
  /** The one link in it, as a path of ours. */
  readonly link: string
  readonly token: string
}

const mailbox = (dataDir: string, to: string): ReadonlyArray<Letter> => {
  const folder = path.join(dataDir, "mail")
  if (!fs.existsSync(folder)) return []
  return fs
    .readdirSync(folder)
    .filter((name) => name.endsWith(".eml"))
    .sort()
    .map((name) => fs.readFileSync(path.join(folder, name), "utf8"))
    .filter((source) => source.includes(`\r\nTo: ${to}\r\n`))
    .map((source) => {
      const text = source
        .slice(source.indexOf("\r\n\r\n") + 4)
        .replaceAll("=\r\n", "")
        .replaceAll(/=([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
      const link = /https?:\/\/\S+/.exec(text)?.[0] ?? "http://none/"
      const { pathname, search, searchParams } = new URL(link)
      return {
        subject: /^Subject: (.*)\r$/m.exec(source)?.[1] ?? "",
        text,
        link: pathname + search,
        token: searchParams.get("token") ?? ""
      }
    })
}

/** What has arrived for an address; waits until there are `count`. */
export const mailsFor = Effect.fn(function* (to: string, count: number) {
  const { dataDir } = yield* Plane
  return yield* eventually(
    `mail number ${count} for ${to}`,
    Effect.sync(() => mailbox(dataDir, to)),
    (found) => found.length >= count
  )
})

/** The newest of `count` mails for an address. */
export const mailFor = (to: string, count = 1) =>
  Effect.map(mailsFor(to, count), (found) => found.at(-1) as Letter)

/** A person with an account, signed in in a browser of their own. */
export const newcomer = Effect.fn(function* (email: string, password?: string) {
  const browser = yield* visitor
  yield* browser.post("/sign-up", { name: "New Comer", email, next: "" })
  const { token } = yield* mailFor(email)
  yield* browser.post("/sign-in/link", { token })
  if (password !== undefined) {
    yield* browser.post("/account/password", { password, next: "/account" })
    yield* mailFor(email, 2)
  }
  return browser
})
