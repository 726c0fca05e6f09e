/** The editor of manifests as a field of a page. */
import { useEffect, useLayoutEffect, useRef } from "react"
import { apiUrl } from "../api/place.ts"
import { type ManifestEditor, openEditor } from "./editor.ts"
import type { JsonSchema } from "./schema.ts"

const isSchema = (value: unknown): value is JsonSchema =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Without it nothing is offered while one types, and everything else works; the next visit asks again. */
const fetchSchema = async (): Promise<JsonSchema | undefined> => {
  const response = await fetch(`${apiUrl}/v1/manifest.schema.json`, { signal: AbortSignal.timeout(60_000) })
  const body: unknown = response.ok ? await response.json() : undefined
  return isSchema(body) ? body : undefined
}

export const EditorField = ({
  text,
  label,
  example,
  changed
}: {
  readonly text: string
  readonly label: string
  readonly example: string
  readonly changed: (text: string) => void
}) => {
  const host = useRef<HTMLDivElement>(null)
  const editor = useRef<ManifestEditor>(undefined)
  const schema = useRef<JsonSchema>(undefined)
  const latest = useRef({ text, changed })
  latest.current = { text, changed }

  useEffect(() => {
    void fetchSchema().then(
      (found) => {
        schema.current = found
      },
      () => {}
    )
  }, [])
  useEffect(() => {
    const at = host.current
    if (at === null) return
    const open = openEditor({
      root: at.shadowRoot ?? at.attachShadow({ mode: "open" }),
      text: latest.current.text,
      label,
      example,
      schema: () => schema.current,
      changed: (next) => latest.current.changed(next)
    })
    editor.current = open
    return () => {
      editor.current = undefined
      open.close()
    }
  }, [label, example])
  // Before the next key is heard: later, what the editor told before it would take it back.
  useLayoutEffect(() => editor.current?.show(text), [text])
  return <div ref={host} className="mt-2 font-mono" />
}
