/**
 * The editor of manifests. It lives in a shadow root: there its styles are constructed sheets, which the page's policy
 * allows, while a `style` element made by a script is not. Tab always goes on to the next control.
 */
import {
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap
} from "@codemirror/autocomplete"
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands"
import { yaml } from "@codemirror/lang-yaml"
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language"
import { linter, lintGutter, lintKeymap } from "@codemirror/lint"
import { EditorState } from "@codemirror/state"
import {
  drawSelection,
  EditorView,
  highlightSpecialChars,
  hoverTooltip,
  keymap,
  lineNumbers,
  placeholder
} from "@codemirror/view"
import { tags } from "@lezer/highlight"
import { completionsAt, longestHelped } from "./completion.ts"
import { faultsOf } from "./faults.ts"
import { pathAt } from "./place.ts"
import { describe, type JsonSchema, schemasAt } from "./schema.ts"

const theme = EditorView.theme({
  "&": {
    border: "1px solid color-mix(in srgb, var(--faint) 60%, transparent)",
    borderRadius: "6px",
    backgroundColor: "var(--bg)",
    color: "var(--ink)",
    fontSize: "12.5px"
  },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "2px" },
  ".cm-scroller": { fontFamily: "inherit", lineHeight: "1.6", minHeight: "28rem", maxHeight: "70vh" },
  ".cm-content": { caretColor: "var(--ink)", padding: "6px 0" },
  ".cm-placeholder": { color: "var(--faint)", whiteSpace: "pre" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--accent) 25%, transparent)"
  },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--faint)", border: "none" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": {
    backgroundColor: "color-mix(in srgb, var(--accent) 20%, transparent)"
  },
  ".cm-tooltip": {
    backgroundColor: "var(--panel)",
    color: "var(--ink)",
    border: "1px solid var(--line)",
    borderRadius: "6px",
    boxShadow: "0 4px 16px rgb(0 0 0 / 0.18)",
    maxWidth: "min(28rem, 90vw)"
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "inherit", maxHeight: "16rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": {
    backgroundColor: "var(--accent)",
    color: "var(--on-accent)"
  },
  ".cm-completionDetail": { fontStyle: "normal", opacity: "0.85" },
  ".cm-help, .cm-tooltip.cm-completionInfo": { padding: "6px 10px", fontFamily: "system-ui, sans-serif" },
  ".cm-diagnostic": {
    padding: "6px 10px",
    borderLeftColor: "var(--bad)",
    fontFamily: "system-ui, sans-serif"
  },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--bad)",
    textUnderlineOffset: "3px"
  },
  ".cm-panels": { backgroundColor: "var(--panel)", color: "var(--ink)", borderColor: "var(--line)" },
  ".cm-panel.cm-panel-lint ul [aria-selected]": {
    backgroundColor: "color-mix(in srgb, var(--accent) 18%, transparent)"
  },
  ".cm-panel.cm-panel-lint button": { color: "var(--ink)" }
})

const colours = syntaxHighlighting(
  HighlightStyle.define([
    { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
    { tag: [tags.string, tags.content], color: "var(--ink)" },
    { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--wait)" },
    { tag: [tags.comment, tags.meta], color: "var(--soft)" },
    { tag: [tags.separator, tags.punctuation, tags.bracket], color: "var(--soft)" }
  ])
)

/** What a field is, where the pointer rests on it. */
const help = (schema: () => JsonSchema | undefined) =>
  hoverTooltip((view, at) => {
    const known = schema()
    const text = view.state.doc.length > longestHelped ? "" : view.state.doc.toString()
    const place = known === undefined || text === "" ? undefined : pathAt(text, at)
    if (known === undefined || place === undefined || place.from === place.to) return null
    const said = describe(schemasAt(known, place.path, place.document))
    if (said === "") return null
    return {
      pos: place.from,
      end: place.to,
      above: true,
      create: () => {
        const dom = document.createElement("div")
        dom.className = "cm-help"
        dom.textContent = said
        return { dom }
      }
    }
  })

export interface ManifestEditor {
  /** Replaces the whole text, as one step that can be taken back; nothing happens if it says the same already. */
  readonly show: (text: string) => void
  readonly focus: () => void
  readonly close: () => void
}

export const openEditor = (options: {
  readonly root: ShadowRoot
  readonly text: string
  readonly label: string
  readonly example: string
  readonly schema: () => JsonSchema | undefined
  readonly changed: (text: string) => void
}): ManifestEditor => {
  const { root, schema } = options
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        lineNumbers(),
        highlightSpecialChars(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        yaml(),
        theme,
        colours,
        placeholder(options.example),
        lintGutter(),
        linter(({ state }) => faultsOf(state.doc.toString()).map((one) => ({ ...one, severity: "error" })), {
          delay: 400
        }),
        autocompletion({
          override: [
            ({ state, pos, explicit }) => {
              const known = schema()
              return known === undefined ? null : completionsAt(known, state.doc.toString(), pos, explicit)
            }
          ]
        }),
        help(schema),
        keymap.of([
          ...closeBracketsKeymap,
          ...completionKeymap,
          ...lintKeymap,
          ...historyKeymap,
          ...defaultKeymap
        ]),
        EditorView.contentAttributes.of({
          "aria-label": options.label,
          spellcheck: "false",
          autocapitalize: "off"
        }),
        EditorView.updateListener.of(({ docChanged, state }) => {
          if (docChanged) options.changed(state.doc.toString())
        })
      ]
    })
  })
  return {
    show: (text) => {
      const { doc } = view.state
      // As the editor has it, so that another kind of line's end is no change.
      const next = view.state.toText(text)
      if (!doc.eq(next)) view.dispatch({ changes: { from: 0, to: doc.length, insert: next } })
    },
    focus: () => view.focus(),
    close: () => view.destroy()
  }
}
