/** A decision: what will happen is said before it does. What was typed stays when it fails. */
import { AlertDialog } from "@base-ui/react/alert-dialog"
import type { ReactNode } from "react"
import type { Failure } from "../api/failure.ts"
import { Button } from "./button.tsx"
import { Problem } from "./problem.tsx"

export const Confirm = ({
  title,
  says,
  action,
  look = "main",
  busy,
  failure,
  ready = true,
  open,
  close,
  confirmed,
  children
}: {
  readonly title: string
  readonly says: string
  /** What the button does, in its words. */
  readonly action: string
  readonly look?: "main" | "danger"
  readonly busy: boolean
  readonly failure: Failure | undefined
  readonly ready?: boolean
  readonly open: boolean
  readonly close: () => void
  readonly confirmed: () => void
  readonly children?: ReactNode
}) => (
  <AlertDialog.Root open={open} onOpenChange={(opened) => !opened && close()}>
    <AlertDialog.Portal>
      <AlertDialog.Backdrop className="fixed inset-0 z-40 bg-black/40" />
      <AlertDialog.Popup className="fixed top-[12vh] left-1/2 z-50 w-[min(30rem,calc(100vw-2rem))] -translate-x-1/2 rounded-lg border border-line bg-panel p-5 outline-none">
        <AlertDialog.Title className="my-0 text-base text-ink wrap-anywhere">{title}</AlertDialog.Title>
        <AlertDialog.Description className="mt-2 text-soft">{says}</AlertDialog.Description>
        <form
          className="mt-3 space-y-3"
          onSubmit={(event) => {
            event.preventDefault()
            if (ready && !busy) confirmed()
          }}
        >
          {children}
          {failure !== undefined && <Problem failure={failure} />}
          <div className="flex justify-end gap-2 pt-2">
            <AlertDialog.Close render={<Button />}>Cancel</AlertDialog.Close>
            <Button type="submit" look={look} busy={busy} disabled={!ready}>
              {action}
            </Button>
          </div>
        </form>
      </AlertDialog.Popup>
    </AlertDialog.Portal>
  </AlertDialog.Root>
)
