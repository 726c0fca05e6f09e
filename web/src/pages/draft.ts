/**
 * The manifest that is being typed, for as long as the tab lives: going to another page and back loses nothing. It may hold
 * secrets, so it is stored nowhere but while the dashboard itself loads the page again, and with another organization it
 * is gone.
 */
let draft = ""
let owner = ""

const carriedKey = "svc-carried-draft"

/** For the load that comes next. False: it is too long to be carried, and would be lost. */
export const carryDraft = (): boolean => {
  if (draft === "") return true
  try {
    sessionStorage.setItem(carriedKey, JSON.stringify([owner, draft]))
    return true
  } catch {
    return false
  }
}

/** What the load before left; it is taken away at once, whoever's it is. */
const carried = (): readonly [string, string] => {
  try {
    const kept: unknown = JSON.parse(sessionStorage.getItem(carriedKey) ?? "null")
    sessionStorage.removeItem(carriedKey)
    return Array.isArray(kept) ? [String(kept[0]), String(kept[1])] : ["", ""]
  } catch {
    return ["", ""]
  }
}
let [carriedOwner, carriedDraft] = carried()

/** From here on drafts are this organization's, as this person sees it; what there was of another is dropped. */
export const beginDrafts = (of: string): void => {
  if (of === owner) return
  owner = of
  draft = of === carriedOwner ? carriedDraft : ""
  // Before it is known who looks, nobody's drafts are begun.
  if (of !== "") [carriedOwner, carriedDraft] = ["", ""]
}

export const readDraft = (): string => draft

/** What comes after the organization was left, such as a file that took long to read, is not kept. */
export const draftKeeper = (): ((text: string) => void) => {
  const of = owner
  return (text) => {
    if (of === owner) draft = text
  }
}
