import { StrictMode } from "react"
import { createRoot } from "react-dom/client"
import { App } from "./app.tsx"
import { Broken } from "./broken.tsx"
import "./style.css"

// After an update, what an open page has not loaded yet is not there any more under its name.
addEventListener("vite:preloadError", () => location.reload())

const root = document.getElementById("root")
if (root === null) throw new Error("the page has no root")
createRoot(root).render(
  <StrictMode>
    <Broken>
      <App />
    </Broken>
  </StrictMode>
)
