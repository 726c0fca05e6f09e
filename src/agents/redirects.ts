/**
 * Where an authorization request's answer may go. A list of what is let in: lists of what is not have been got round by
 * case, white space, control characters and new schemes.
 */

const longest = 1_000
/** RFC 8252, section 7.3: the port is the program's to choose when it asks. `localhost`, because clients use it. */
const loopback = /^http:\/\/(127\.0\.0\.1|\[::1\]|localhost)(?::(\d{1,5}))?(\/[^#]*)?$/

/**
 * Whether a client may register the address: https, http on this machine, or the scheme of an editor, written as a
 * browser would write it, so that what is compared is what is followed.
 */
export const mayRedirectTo = (text: string, schemes: ReadonlySet<string>): boolean => {
  if (text.length > longest || !/^[\x21-\x7e]+$/.test(text) || /[\\#"<>]/.test(text)) return false
  const url = URL.parse(text)
  if (url === null || url.username !== "" || url.password !== "") return false
  if (url.href !== text && url.href !== `${text}/`) return false
  switch (url.protocol) {
    case "https:":
      return url.hostname !== ""
    case "http:":
      return loopback.test(text)
    default:
      return (
        schemes.has(url.protocol.slice(0, -1)) && text.startsWith(`${url.protocol}//`) && url.hostname !== ""
      )
  }
}

/** Whether the address is one of those registered: exactly, but for the port of a loopback address. */
export const isRegistered = (registered: ReadonlyArray<string>, asked: string): boolean =>
  registered.some((one) => {
    if (one === asked) return true
    const [ours, theirs] = [loopback.exec(one), loopback.exec(asked)]
    if (ours === null || theirs === null || !URL.canParse(asked)) return false
    return ours[1] === theirs[1] && (ours[3] ?? "") === (theirs[3] ?? "")
  })

/**
 * The address with these parameters added to its query, of which the rest stays as it is written (RFC 6749, section
 * 3.1.2). One of a parameter's name gives way: the client would find two.
 */
export const withParams = (uri: string, params: Readonly<Record<string, string | null>>): string => {
  const [address = "", query = ""] = new URL(uri).href.split(/\?(.*)/s)
  const added = new URLSearchParams()
  for (const [name, value] of Object.entries(params)) if (value !== null) added.set(name, value)
  const kept = query
    .split("&")
    .filter((part) => part !== "" && ![...new URLSearchParams(part).keys()].some((name) => added.has(name)))
  return `${address}?${[...kept, added].join("&")}`
}
