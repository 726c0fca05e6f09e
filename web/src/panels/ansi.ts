/** Colours of terminals (ECMA-48, SGR) as parts of text. Every other control sequence is left out. */

export interface Piece {
  readonly text: string
  /** A class of the style sheet; empty: as usual. */
  readonly look: string
}

const colours: Readonly<Record<number, string>> = {
  31: "text-bad",
  32: "text-ok",
  33: "text-wait",
  34: "text-accent",
  35: "text-accent",
  36: "text-accent",
  90: "text-faint",
  91: "text-bad",
  92: "text-ok",
  93: "text-wait",
  94: "text-accent",
  95: "text-accent",
  96: "text-accent"
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control sequences begin with one.
const sequences = /\x1b\[([0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b./g
// biome-ignore lint/suspicious/noControlCharactersInRegex: what is left of them is not shown.
const controls = /[\x00-\x08\x0b-\x1f\x7f]/g

export const piecesOf = (line: string): ReadonlyArray<Piece> => {
  const pieces: Array<Piece> = []
  let colour = ""
  let bold = ""
  let from = 0
  const add = (text: string) => {
    const clean = text.replace(controls, "")
    if (clean !== "")
      pieces.push({ text: clean, look: [colour, bold].filter((part) => part !== "").join(" ") })
  }
  for (const found of line.matchAll(sequences)) {
    add(line.slice(from, found.index))
    from = found.index + found[0].length
    if (found[2] !== "m") continue
    for (const code of (found[1] ?? "").split(";").map(Number)) {
      if (code === 0) colour = bold = ""
      if (code === 1) bold = "font-semibold"
      if (code === 22) bold = ""
      if (code === 39) colour = ""
      colour = colours[code] ?? colour
    }
  }
  add(line.slice(from))
  return pieces
}
