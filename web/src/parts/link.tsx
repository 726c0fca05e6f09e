/** A link within the dashboard: without loading the page, unless the reader wants a tab of its own. */
import type { AnchorHTMLAttributes, MouseEvent } from "react"
import { go } from "../router.ts"

type Props = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> & { readonly to: string }

export const Link = ({ to, onClick, ...rest }: Props) => (
  <a
    {...rest}
    href={to}
    onClick={(event: MouseEvent<HTMLAnchorElement>) => {
      onClick?.(event)
      if (event.defaultPrevented || event.button !== 0) return
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
      event.preventDefault()
      go(to)
    }}
  />
)
