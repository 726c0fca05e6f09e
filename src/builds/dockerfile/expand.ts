/** Variables in the words of a Dockerfile: `$name`, `${name}`, `${name:-else}` and `${name:+then}`; `\$` is a dollar. */
const pattern = /\\(\$)|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:[-+])([^}]*))?\})/g

export const expand = (text: string, values: ReadonlyMap<string, string>): string =>
  text.replace(
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
      if (how === ":-") return value === "" ? (other ?? "") : value
      if (how === ":+") return value === "" ? "" : (other ?? "")
      return value
    }
  )
