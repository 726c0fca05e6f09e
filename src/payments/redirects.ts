/** Whether customers may be sent back to an address: its origin is compared as text, so that no two parsers differ on it. */
export const redirectFault = (origins: ReadonlyArray<string>, address: string): string | undefined => {
  // Spaces, control characters and backslashes are what parsers read differently (WHATWG URL, section 4.4).
  if (!/^[!#$%&'()*+,\-./0-9:;=?@A-Z[\]_a-z{|}~]*$/.test(address))
    return "must be an address in ASCII without spaces"
  const origin = origins.find(
    (one) => address === one || ["/", "?", "#"].some((end) => address.startsWith(one + end))
  )
  const listed = "must begin with one of the connection's allowed redirect origins"
  if (origin === undefined || !URL.canParse(address)) return listed
  return new URL(address).origin === origin ? undefined : listed
}
