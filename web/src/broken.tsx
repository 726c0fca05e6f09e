/** A page that could not be loaded, or a fault of the dashboard itself: said, instead of a white page. */
import { Component, type ReactNode } from "react"
import { carryDraft } from "./pages/draft.ts"
import { Button } from "./parts/button.tsx"
import { forgetFailures, NotLoaded } from "./parts/lazily.ts"

interface State {
  readonly broken: "" | "unloaded" | "faulty"
}

export class Broken extends Component<{ readonly children: ReactNode }, State> {
  override state: State = { broken: "" }

  static getDerivedStateFromError(error: unknown): State {
    return { broken: error instanceof NotLoaded ? "unloaded" : "faulty" }
  }

  /** Who goes to another page and comes back has it asked for again. */
  override componentWillUnmount() {
    forgetFailures()
  }

  readonly again = () => {
    forgetFailures()
    this.setState({ broken: "" })
  }

  override render() {
    const { broken } = this.state
    if (broken === "") return this.props.children
    return (
      <div className="p-7" role="alert">
        <h1>This page failed</h1>
        <p className="my-3">
          {broken === "unloaded"
            ? "Its file could not be loaded. Nothing was changed by that, and what was typed into a manifest is kept."
            : "Nothing was changed by that. Load it again when the control plane can be reached; svc status shows the same data."}
        </p>
        <div className="flex flex-wrap gap-2">
          {broken === "unloaded" && (
            <Button look="main" onClick={this.again}>
              Try again
            </Button>
          )}
          {/* Browsers remember that a file did not come for as long as the page lives, also one that this file imports. */}
          <Button
            onClick={() => {
              carryDraft()
              location.reload()
            }}
          >
            Load everything again
          </Button>
        </div>
      </div>
    )
  }
}
