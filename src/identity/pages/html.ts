/**
 * HTML for pages that work without a script: a template that escapes, the frame that all pages share, and the header
 * fields that keep a page to itself.
 */
import { createHash } from "node:crypto"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import { style } from "./style.ts"

/** Text that is HTML already. Everything else is escaped where it is put in. */
export class Html {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

type Part = Html | string | number | undefined | false | ReadonlyArray<Html>

const escapes: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;"
}
const escaped = (text: string) => text.replaceAll(/[&<>"']/g, (character) => escapes[character] ?? "")

const render = (part: Part): string => {
  if (part === undefined || part === false) return ""
  if (part instanceof Html) return part.text
  if (typeof part === "object") return part.map(render).join("")
  return escaped(String(part))
}

export const html = (strings: TemplateStringsArray, ...parts: ReadonlyArray<Part>): Html =>
  new Html(strings.map((text, index) => text + (index < parts.length ? render(parts[index]) : "")).join(""))

const styleDigest = createHash("sha256").update(style).digest("base64")

/** No script, nothing from elsewhere, in no frame; forms go nowhere but here. */
const policy = [
  "default-src 'none'",
  `style-src 'sha256-${styleDigest}'`,
  "img-src data:",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'"
].join("; ")

export interface Page {
  readonly title: string
  readonly body: Html
  readonly status?: number
  /** Said first, and announced to whoever does not see it. */
  readonly problem?: string | undefined
  /** Where the browser goes from the page by itself, at once; a URL without white space. */
  readonly onward?: string
  /**
   * Another site may have opened the window, and waits there for what comes after the page: programs that are pages
   * let people sign in so. Our window and theirs stay connected then.
   */
  readonly popup?: boolean
  /** For more than a few fields. */
  readonly wide?: boolean
  readonly headers?: Readonly<Record<string, string>>
}

export const page = ({
  title,
  body,
  status = 200,
  problem,
  onward,
  popup = false,
  wide = false,
  headers = {}
}: Page) =>
  HttpServerResponse.text(
    html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${problem === undefined ? "" : "Problem: "}${title}</title>
<link rel="icon" href="data:,">
${onward !== undefined && html`<meta http-equiv="refresh" content="0;url=${onward}">\n`}<style>${new Html(style)}</style>
</head>
<body>
<main${wide && html` class="wide"`}>
<h1>${title}</h1>
${problem !== undefined && html`<div class="problem" role="alert" id="problem"><p>${problem}</p></div>`}
${body}
</main>
</body>
</html>
`.text,
    {
      status,
      contentType: "text/html; charset=utf-8",
      headers: {
        "cache-control": "no-store",
        "content-security-policy": policy,
        // Links hold tokens; the forms' own requests need to say where they come from.
        "referrer-policy": "same-origin",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": popup ? "unsafe-none" : "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        ...headers
      }
    }
  )

export interface Field {
  readonly name: string
  readonly label: string
  readonly type: "email" | "password" | "text"
  readonly autocomplete: string
  readonly value?: string
  readonly hint?: string
  readonly required?: boolean
  /** The cursor waits here when the page opens. */
  readonly first?: boolean
  /** The page's problem is about this field. */
  readonly faulty?: boolean
  readonly shortest?: number
}

export const field = (one: Field): Html => {
  const described = [one.hint === undefined ? "" : `${one.name}-hint`, one.faulty === true ? "problem" : ""]
    .filter((id) => id !== "")
    .join(" ")
  return html`<label for="${one.name}">${one.label}</label>
${one.hint !== undefined && html`<p class="hint" id="${one.name}-hint">${one.hint}</p>`}
<input id="${one.name}" name="${one.name}" type="${one.type}" autocomplete="${one.autocomplete}" value="${one.value ?? ""}"${one.required !== false && html` required`}${one.shortest !== undefined && html` minlength="${one.shortest}"`}${described !== "" && html` aria-describedby="${described}"`}${one.faulty === true && html` aria-invalid="true"`}${one.first === true && html` autofocus`}>
`
}

/** `hidden` goes with the form unseen. */
export const form = (
  action: string,
  hidden: Readonly<Record<string, string>>,
  content: Html,
  button: string,
  plain = false
): Html => html`<form method="post" action="${action}">
${Object.entries(hidden).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
${content}
<button type="submit"${plain && html` class="plain"`}>${button}</button>
</form>
`
