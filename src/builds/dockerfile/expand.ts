/** Variables in the words of a Dockerfile: `$name`, `${name}`, `${name:-else}` and `${name:+then}`; `\$` is a dollar. */
const pattern = /\\(\$)|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:[-+])([^}]*))?\})/g

/** Letters that one text may come to: values that are put into each other grow twofold with each line. */
const longest = 64 * 1024

export class TooLong extends Error {
  constructor() {
    super(`variables make a text of more than ${longest} letters`)
  }
}

/** Throws `TooLong`. */
export const expand = (text: string, values: ReadonlyMap<string, string>): string => {
  let length = text.length
  const counted = (value: string) => {
    length += value.length
    if (length > longest) throw new TooLong()
    return value
  }
  return text.replace(
    pattern,
    (
      _,
      dollar: string | undefined,
      plain: string | undefined,
      braced: string | undefined,
      how: string | undefined,
      other: string | undefined
    ) => {
      if (dollar !== undefined) return dollar
      const value = values.get(plain ?? braced ?? "") ?? ""
      if (how === ":-") return counted(value === "" ? (other ?? "") : value)
      if (how === ":+") return counted(value === "" ? "" : (other ?? ""))
      return counted(value)
    }
  )
}
