/**
 * The manifest that is being typed, for as long as the tab lives: going to another page and back loses nothing. It may hold
 * secrets, so it is stored nowhere, and with another organization it is gone.
 */
let draft = ""
let owner = ""

/** From here on drafts are this organization's, as this person sees it; what there was of another is dropped. */
export const beginDrafts = (of: string): void => {
  if (of === owner) return
  owner = of
  draft = ""
}

export const readDraft = (): string => draft

/** What comes after the organization was left, such as a file that took long to read, is not kept. */
export const draftKeeper = (): ((text: string) => void) => {
  const of = owner
  return (text) => {
    if (of === owner) draft = text
  }
}
