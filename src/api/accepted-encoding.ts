/** Which form of an answer that there are compressed forms of a caller gets. */
export type Encoding = "br" | "gzip" | "identity"

/** The shortest form that the caller takes (RFC 9110, section 12.5.3; weights only matter when they are zero). */
export const acceptedEncoding = (field: string | undefined): Encoding => {
  const taken = new Set(
    (field ?? "")
      .toLowerCase()
      .split(",")
      .map((part) => part.split(";").map((piece) => piece.trim()))
      .filter(([, weight]) => weight === undefined || !/^q=0(\.0*)?$/.test(weight))
      .map(([name]) => name)
  )
  return taken.has("br") ? "br" : taken.has("gzip") || taken.has("*") ? "gzip" : "identity"
}
