/**
 * Server-sent events out of pieces of bytes (WHATWG HTML, section 9.2.6, "Interpreting an event stream"), as far as model
 * servers use them: the data of each event. What is kept between pieces is bounded.
 */

/** Characters of one event. */
const longestEvent = 1024 * 1024

/**
 * Takes pieces in order and answers the data of the events that end in each, comments and events without data left out.
 * Undefined: an event is longer than it may be, and nothing further can be read.
 */
export const eventSplitter = (
  longest = longestEvent
): ((piece: Uint8Array) => ReadonlyArray<string> | undefined) => {
  const decoder = new TextDecoder()
  /** The line that has not ended. */
  let line = ""
  let data: string | undefined
  /** A line ended with CR at the end of a piece: an LF that follows belongs to it. */
  let afterReturn = false

  return (piece) => {
    let text = decoder.decode(piece, { stream: true })
    if (afterReturn && text !== "") {
      if (text.startsWith("\n")) text = text.slice(1)
      afterReturn = false
    }
    const events: Array<string> = []
    let from = 0
    /** The next of each; -1: there is none. */
    let feed = text.indexOf("\n")
    let carriage = text.indexOf("\r")
    for (;;) {
      if (feed !== -1 && feed < from) feed = text.indexOf("\n", from)
      if (carriage !== -1 && carriage < from) carriage = text.indexOf("\r", from)
      const end = feed === -1 || (carriage !== -1 && carriage < feed) ? carriage : feed
      if (end === -1) break
      const whole = line + text.slice(from, end)
      line = ""
      from = end + 1
      if (end === carriage) {
        if (from === text.length) afterReturn = true
        else if (text.charCodeAt(from) === lineFeed) from++
      }
      if (whole === "") {
        if (data !== undefined) events.push(data)
        data = undefined
      } else if (whole.startsWith("data:")) {
        const value = whole.slice(whole.charCodeAt(5) === space ? 6 : 5)
        data = data === undefined ? value : `${data}\n${value}`
        if (data.length > longest) return undefined
      }
    }
    line += text.slice(from)
    return line.length > longest ? undefined : events
  }
}

const lineFeed = 10
const space = 32
