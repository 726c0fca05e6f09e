import type { ButtonHTMLAttributes } from "react"

type Look = "plain" | "main" | "danger"

const looks: Readonly<Record<Look, string>> = {
  plain: "border-line bg-panel text-ink hover:border-faint",
  main: "border-transparent bg-accent text-on-accent hover:opacity-90",
  danger: "border-transparent bg-bad text-bg hover:opacity-90"
}

export const buttonClass = (look: Look = "plain"): string =>
  `inline-flex min-h-8 items-center justify-center rounded-md border px-3 py-1 font-medium whitespace-nowrap disabled:opacity-50 ${looks[look]}`

type Props = ButtonHTMLAttributes<HTMLButtonElement> & { readonly look?: Look; readonly busy?: boolean }

/** `busy`: what it does is under way, and it cannot be done twice. */
export const Button = ({ look = "plain", busy = false, disabled, ...rest }: Props) => (
  <button
    type="button"
    {...rest}
    className={`${buttonClass(look)} ${rest.className ?? ""}`}
    disabled={busy || disabled === true}
    aria-busy={busy}
  />
)
