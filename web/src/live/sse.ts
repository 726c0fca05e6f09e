/**
 * Server-sent events (WHATWG HTML, section 9.2.6) as a parser of pieces of text: events with their data and id, and
 * comments, which browsers' own parser hides.
 */
export type Message =
  | { readonly type: "event"; readonly id: string | undefined; readonly data: string }
  | { readonly type: "comment"; readonly text: string }

/** Characters of one line; whoever sends more than that does not speak this protocol. */
const longestLine = 32 * 1024 * 1024

export const makeParser = () => {
  let rest = ""
  let id: string | undefined
  let data: Array<string> = []

  const line = (text: string): Message | undefined => {
    if (text === "") {
      const message =
        data.length === 0 ? undefined : ({ type: "event", id, data: data.join("\n") } satisfies Message)
      data = []
      return message
    }
    const colon = text.indexOf(":")
    const field = colon === -1 ? text : text.slice(0, colon)
    const value = colon === -1 ? "" : text.slice(colon + 1).replace(/^ /, "")
    if (field === "") return { type: "comment", text: value }
    if (field === "data") data.push(value)
    if (field === "id" && !value.includes("\0")) id = value
    return undefined
  }

  return (piece: string): ReadonlyArray<Message> => {
    rest += piece
    const messages: Array<Message> = []
    let start = 0
    for (let end = rest.indexOf("\n"); end !== -1; end = rest.indexOf("\n", start)) {
      const message = line(rest.slice(start, end).replace(/\r$/, ""))
      if (message !== undefined) messages.push(message)
      start = end + 1
    }
    rest = rest.slice(start)
    if (rest.length > longestLine) throw new Error("a line of the stream does not end")
    return messages
  }
}
