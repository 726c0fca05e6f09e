import { StrictMode } from "react"
import { createRoot } from "react-dom/client"
import { App } from "./app.tsx"
import { Broken } from "./broken.tsx"
import { carryDraft } from "./pages/draft.ts"
import "./style.css"

/** Once a minute at most: what is missing may be missing in the new build too. */
const reloadAfterUpdate = async () => {
  const before = Number(sessionStorage.getItem("reloaded-at") ?? 0)
  if (Date.now() - before < 60_000) return
  const { ok } = await fetch(document.baseURI, { cache: "no-store" })
  if (!ok || !carryDraft()) return
  sessionStorage.setItem("reloaded-at", String(Date.now()))
  location.reload()
}
// After an update, what an open page has not loaded yet is not there any more under its name. While the control plane
// cannot be reached the page stays, with what was typed into it.
addEventListener("vite:preloadError", () => void reloadAfterUpdate().catch(() => {}))

const root = document.getElementById("root")
if (root === null) throw new Error("the page has no root")
createRoot(root).render(
  <StrictMode>
    <Broken>
      <App />
    </Broken>
  </StrictMode>
)
