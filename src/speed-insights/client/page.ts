/** `<script defer src=".../client.js" data-project="..." [data-environment="..."] [data-respect-do-not-track]></script>` */
import { start } from "./start.ts"

const script = document.currentScript
if (script instanceof HTMLScriptElement) {
  const { project, environment = "production", respectDoNotTrack } = script.dataset
  start({
    endpoint: new URL(`collect/${project}`, script.src).href,
    environment,
    respectDoNotTrack: respectDoNotTrack !== undefined
  })
}
