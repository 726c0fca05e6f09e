/**
 * Where a text stops being JSON (RFC 8259), and what should stand there. The runtime's parser says it in words that
 * differ from release to release and may quote the text, which can hold secrets.
 */
import { deepestJson } from "#schemas/json-depth.ts"

export interface SyntaxFault {
  readonly offset: number
  readonly message: string
}

/** For text that the runtime's parser refuses. */
export const syntaxFault = (source: string): SyntaxFault | undefined => {
  let at = 0
  const open: Array<"{" | "["> = []
  const fault = (expected: string): SyntaxFault => ({
    offset: Math.min(at, source.length),
    message: at >= source.length ? `the text ends where ${expected} is expected` : `${expected} is expected`
  })
  const space = () => {
    at = match(whitespace) ?? at
  }
  const match = (pattern: RegExp): number | undefined => {
    pattern.lastIndex = at
    return pattern.test(source) ? pattern.lastIndex : undefined
  }
  const string = (what: string): SyntaxFault | undefined => {
    if (source[at] !== '"') return fault(what)
    at = match(stringBody) ?? at
    if (source[at] === '"') {
      at += 1
      return undefined
    }
    return at < source.length && source[at] !== "\\" && source.charCodeAt(at) < 0x20
      ? fault("an escape such as \\n instead of a control character")
      : fault(source[at] === "\\" ? "a known escape" : "the quote that ends the string")
  }
  const key = (): SyntaxFault | undefined => {
    const wrong = string("a key in double quotes")
    if (wrong !== undefined) return wrong
    space()
    if (source[at] !== ":") return fault("a colon")
    at += 1
    space()
    return undefined
  }

  for (;;) {
    // A value, or the start of one.
    space()
    const first = source[at]
    if (first === "{" || first === "[") {
      at += 1
      space()
      if (source[at] === (first === "{" ? "}" : "]")) at += 1
      else {
        open.push(first)
        // The depth is bounded elsewhere; what is deeper is not looked at.
        if (open.length > deepestJson) return undefined
        const wrong = first === "{" ? key() : undefined
        if (wrong !== undefined) return wrong
        continue
      }
    } else if (first === '"') {
      const wrong = string("a value")
      if (wrong !== undefined) return wrong
    } else {
      const end = match(scalar)
      if (end === undefined) return fault("a value")
      at = end
    }
    // What follows a value: the ends of what it is in, then a comma.
    for (;;) {
      space()
      const around = open.at(-1)
      if (around === undefined) return at < source.length ? fault("the end of the text") : undefined
      if (source[at] === ",") {
        at += 1
        space()
        const wrong = around === "{" ? key() : undefined
        if (wrong !== undefined) return wrong
        break
      }
      if (source[at] !== (around === "{" ? "}" : "]")) {
        return fault(around === "{" ? "a comma or a closing brace" : "a comma or a closing bracket")
      }
      at += 1
      open.pop()
    }
  }
}

const whitespace = /[ \t\n\r]*/y
/** From the opening quote to the closing one, or to where the string goes wrong. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not stand there.
const stringBody = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/y
const scalar = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])/y
