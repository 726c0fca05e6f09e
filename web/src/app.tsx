/** Which page an address shows, to whom. */
import { type ReactNode, Suspense, useEffect, useMemo, useState } from "react"
import { client } from "./api/client.ts"
import { signIn } from "./api/place.ts"
import { roleOf } from "./api/roles.ts"
import { useAnswer } from "./api/use-answer.ts"
import { Broken } from "./broken.tsx"
import { type Caller, CallerContext } from "./caller.ts"
import { followOrganization, useLive } from "./live/resources.ts"
import { beginDrafts } from "./pages/draft.ts"
import { Overview } from "./pages/overview.tsx"
import { lazily } from "./parts/lazily.ts"
import { Link } from "./parts/link.tsx"
import { Head } from "./parts/panel.tsx"
import { Loading, Problem } from "./parts/problem.tsx"
import { useReturns } from "./returns.ts"
import { go, pathTo, usePlace } from "./router.ts"
import { ConnectionLine } from "./shell/connection-line.tsx"
import { Nav } from "./shell/nav.tsx"
import { Palette } from "./shell/palette.tsx"

const ResourceTree = lazily(async (get) => (await get(() => import("./pages/resources.tsx"))).ResourceTree)
const ResourcePage = lazily(async (get) => (await get(() => import("./pages/resource.tsx"))).ResourcePage)
const PlanPage = lazily(async (get) => (await get(() => import("./pages/plan.tsx"))).PlanPage)
const SavedPlanPage = lazily(async (get) => (await get(() => import("./pages/saved-plan.tsx"))).SavedPlanPage)
const AuditPage = lazily(async (get) => (await get(() => import("./pages/audit.tsx"))).AuditPage)
const MembersPage = lazily(async (get) => (await get(() => import("./pages/members.tsx"))).MembersPage)
const ProjectPage = lazily(async (get) => (await get(() => import("./pages/project.tsx"))).ProjectPage)
const ProjectsPage = lazily(async (get) => (await get(() => import("./pages/project.tsx"))).ProjectsPage)
const WebhooksPage = lazily(async (get) => (await get(() => import("./pages/webhooks.tsx"))).WebhooksPage)
const KeysPage = lazily(async (get) => (await get(() => import("./pages/keys.tsx"))).KeysPage)
const GitPage = lazily(async (get) => (await get(() => import("./pages/git.tsx"))).GitPage)
const DestinationsPage = lazily(
  async (get) => (await get(() => import("./pages/destinations.tsx"))).DestinationsPage
)

const pageOf = (parts: ReadonlyArray<string>): ReactNode => {
  const [section, id, ...more] = parts
  if (more.length > 0) return undefined
  if (section === "resources" && id !== undefined) return <ResourcePage uid={id} />
  if (section === "plan" && id !== undefined) return <SavedPlanPage id={id} />
  if (section === "projects" && id !== undefined) return <ProjectPage key={id} slug={id} />
  if (id !== undefined) return undefined
  if (section === undefined) return <Overview />
  if (section === "resources") return <ResourceTree />
  if (section === "plan") return <PlanPage />
  if (section === "audit") return <AuditPage />
  if (section === "members") return <MembersPage />
  if (section === "projects") return <ProjectsPage />
  if (section === "webhooks") return <WebhooksPage />
  if (section === "keys") return <KeysPage />
  if (section === "git") return <GitPage />
  if (section === "destinations") return <DestinationsPage />
  return undefined
}

export const App = () => {
  const { parts } = usePlace()
  // In another tab somebody else may have signed in meanwhile, or a role may have changed.
  const me = useAnswer("me", () => client.me.get(), useReturns())
  const [slug, ...rest] = parts
  const caller = useMemo((): Omit<Caller, "org"> | undefined => {
    if (me.value === undefined) return undefined
    const { userId, user, organizations } = me.value
    return {
      userId: userId ?? "",
      email: user?.email ?? "",
      organizations: organizations.map((one) => ({ ...one, role: roleOf(one.role) }))
    }
  }, [me.value])
  const org = caller?.organizations.find((one) => one.slug === slug)
  const first = caller?.organizations[0]
  // Who was signed in before keeps what was typed, and reads why nothing else is shown.
  const signedOut = me.value === undefined && me.failure?.problem.status === 401

  useEffect(() => {
    if (signedOut) signIn()
  }, [signedOut])
  useEffect(() => {
    if (slug === undefined && first !== undefined) go(pathTo(first.slug), { replace: true })
  }, [slug, first])
  const reader = caller === undefined || org === undefined ? "" : `${caller.userId} ${org.slug}`
  // Before anything of the organization is drawn.
  beginDrafts(reader)
  useEffect(() => followOrganization(org?.slug ?? "", caller?.userId ?? ""), [org?.slug, caller?.userId])

  if (caller === undefined || slug === undefined)
    return (
      <main className="p-7">
        {me.failure !== undefined && !signedOut ? (
          <Problem failure={me.failure} again={me.again} />
        ) : caller !== undefined && first === undefined ? (
          <p>
            You are a member of no organization. Ask for an invitation, or create one with svc orgs create.
          </p>
        ) : (
          <Loading what="the dashboard" />
        )}
      </main>
    )
  if (org === undefined)
    return (
      <main className="p-7">
        <Head title="No such organization" />
        <p>There is no organization “{slug}”, or you are not a member of it. Yours:</p>
        <ul className="mt-2 list-disc pl-5">
          {caller.organizations.map((one) => (
            <li key={one.slug}>
              <Link to={pathTo(one.slug)} className="text-accent underline">
                {one.name}
              </Link>
            </li>
          ))}
        </ul>
      </main>
    )
  return <Within key={reader} caller={{ ...caller, org }} parts={rest} />
}

/** To whom the organization is closed, nothing of it is shown any more. */
const WhileAllowed = ({ children }: { readonly children: ReactNode }) =>
  useLive().connection.state === "refused" ? null : children

/** Everything within one organization, for one person: another is drawn anew, with nothing of this. */
const Within = ({ caller, parts }: { readonly caller: Caller; readonly parts: ReadonlyArray<string> }) => {
  const [searching, setSearching] = useState(false)
  const page = pageOf(parts)
  return (
    <CallerContext value={caller}>
      <div className="min-h-screen md:grid md:grid-cols-[13.5rem_minmax(0,1fr)]">
        <Nav palette={() => setSearching(true)} />
        <div className="min-w-0">
          <ConnectionLine />
          <main className="mx-auto max-w-6xl px-4 pt-5 pb-16 sm:px-7">
            <WhileAllowed>
              <Broken key={parts.join("/")}>
                <Suspense fallback={<Loading what="the page" />}>
                  {page ?? (
                    <>
                      <Head title="No such page" />
                      <p>
                        This address shows nothing.{" "}
                        <Link to={pathTo(caller.org.slug)} className="text-accent underline">
                          Go to the overview
                        </Link>
                      </p>
                    </>
                  )}
                </Suspense>
              </Broken>
            </WhileAllowed>
          </main>
        </div>
        <Palette open={searching} setOpen={setSearching} />
      </div>
    </CallerContext>
  )
}
