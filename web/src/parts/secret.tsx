/** A secret that is shown once: it is in no address and no storage, and gone with the page. */
import { useState } from "react"
import { Button } from "./button.tsx"

export const Secret = ({
  value,
  what,
  hide
}: {
  readonly value: string
  /** Such as "The key of deploys". */
  readonly what: string
  readonly hide: () => void
}) => {
  /** What was copied: another secret may have come since. */
  const [copied, setCopied] = useState<string>()
  return (
    <div
      role="status"
      className="flex flex-wrap items-center justify-between gap-3 rounded-lg border border-accent/50 bg-panel px-3.5 py-3"
    >
      <div className="min-w-0">
        <p className="mb-1">
          <b className="font-medium wrap-anywhere" dir="auto">
            {what}
          </b>{" "}
          is shown once: copy it now.
        </p>
        <code className="font-mono text-[12.5px] wrap-anywhere">{value}</code>
      </div>
      <div className="flex gap-2">
        {"clipboard" in navigator && (
          <Button
            look="main"
            onClick={() =>
              void navigator.clipboard.writeText(value).then(
                () => setCopied(value),
                () => setCopied(undefined)
              )
            }
          >
            {copied === value ? "Copied" : "Copy"}
          </Button>
        )}
        <Button onClick={hide}>Hide</Button>
      </div>
    </div>
  )
}
