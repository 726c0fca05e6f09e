/**
 * The manifest that is being typed, for as long as the tab lives: going to another page and back loses nothing. It may hold
 * secrets, so it is stored nowhere, and with another organization it is gone.
 */
let draft = ""

export const readDraft = (): string => draft

export const keepDraft = (text: string): void => {
  draft = text
}
