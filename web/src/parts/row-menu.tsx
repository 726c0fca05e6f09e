/** What can be done to one row of a list, behind one button. */
import { Menu } from "@base-ui/react/menu"
import type * as Context from "effect/Context"
import { takesRole } from "../api/roles.ts"
import { useCaller } from "../caller.ts"

export interface RowAction {
  readonly name: string
  readonly run: () => void
  /** The operation behind it: whose role does not allow it reads which one it takes. */
  readonly by: { readonly annotations: Context.Context<never> }
  readonly danger?: boolean
}

export const RowMenu = ({
  label,
  actions
}: {
  /** Of what the actions are, such as its name. */
  readonly label: string
  readonly actions: ReadonlyArray<RowAction>
}) => {
  const { org } = useCaller()
  if (actions.length === 0) return null
  return (
    <Menu.Root modal={false}>
      <Menu.Trigger
        aria-label={`Actions: ${label}`}
        className="-my-1 inline-flex size-8 items-center justify-center rounded-md border border-transparent text-soft hover:border-line hover:text-ink data-popup-open:border-line"
      >
        <span aria-hidden="true" className="flex gap-0.75 *:size-0.75 *:rounded-full *:bg-current">
          <span />
          <span />
          <span />
        </span>
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Positioner align="end" sideOffset={4} className="z-40 outline-none">
          <Menu.Popup className="min-w-36 rounded-lg border border-line bg-panel p-1 shadow-lg outline-none">
            {actions.map(({ name, run, by, danger = false }) => {
              const needed = takesRole(by, org.role)
              return (
                <Menu.Item
                  key={name}
                  disabled={needed !== undefined}
                  onClick={run}
                  className={`flex cursor-pointer items-baseline justify-between gap-4 rounded-md px-2.5 py-1.5 outline-none data-disabled:cursor-default data-disabled:text-faint data-highlighted:bg-accent/15 ${danger ? "text-bad" : ""}`}
                >
                  {name}
                  {needed !== undefined && <span className="text-xs">takes the role {needed}</span>}
                </Menu.Item>
              )
            })}
          </Menu.Popup>
        </Menu.Positioner>
      </Menu.Portal>
    </Menu.Root>
  )
}

/** The head of the last column of a table, whose cells are menus. */
export const menuColumn = { head: "", says: "Actions", look: "actions" } as const
