/** A page that could not be loaded, or a fault of the dashboard itself: said, instead of a white page. */
import { Component, type ReactNode } from "react"
import { Button } from "./parts/button.tsx"

export class Broken extends Component<{ readonly children: ReactNode }, { readonly broken: boolean }> {
  override state = { broken: false }

  static getDerivedStateFromError() {
    return { broken: true }
  }

  override render() {
    if (!this.state.broken) return this.props.children
    return (
      <div className="p-7" role="alert">
        <h1>This page failed</h1>
        <p className="my-3">
          Nothing was changed by that. Load it again when the control plane can be reached; svc status shows
          the same data.
        </p>
        <Button onClick={() => location.reload()}>Load again</Button>
      </div>
    )
  }
}
