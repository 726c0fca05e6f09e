/** The preview of a pull request: where it is, what it has, and whether a fork's commit may have secrets and data. */
import { Previews } from "#src/previews/api.ts"
import { previews } from "../api/git.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { In } from "../parts/time.tsx"
import { pathTo } from "../router.ts"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

/** The commit is the one that was looked at: a later one may come while the question stands. */
type Asked = { readonly what: "approve"; readonly commit: string } | { readonly what: "close" }

export const PreviewPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, previewId: resource.uid }
  const answer = useAnswer(`preview ${resource.uid}`, () => previews.get({ params }), resource.revision)
  const { asked, ask, run, dialog } = useDecision<Asked>(answer.again)
  const approved = asked?.what === "approve" ? asked.commit : ""
  return (
    <Answered of={answer} what="the preview">
      {({ body: preview }) => (
        <>
          <Tiles>
            <Tile value={`#${preview.pullRequest}`} says="pull request" />
            <Tile value={preview.status} says="state" bad={preview.status === "failed"} />
            <Tile
              value={preview.expiresAt === null ? "never" : <In at={preview.expiresAt} />}
              says="is closed by itself"
            />
            <Tile
              value={preview.trusted ? "yes" : "no"}
              says={preview.fork ? "has secrets and data; of a fork" : "has secrets and data"}
            />
          </Tiles>
          {preview.title !== null && (
            <p className="mt-3 font-medium wrap-anywhere" dir="auto">
              {preview.title}
            </p>
          )}
          {preview.problem !== null && (
            <p className="mt-2 text-wait wrap-anywhere" dir="auto">
              {preview.problem}
            </p>
          )}
          <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
            <p className="flex min-w-0 flex-wrap gap-x-4 gap-y-1">
              <code className="font-mono text-[12.5px] wrap-anywhere">{preview.commit.slice(0, 12)}</code>
              {preview.address !== null && (
                <a
                  href={preview.address}
                  target="_blank"
                  rel="noreferrer"
                  className="text-accent underline wrap-anywhere"
                >
                  {preview.address}
                </a>
              )}
              {preview.deploymentId !== null && (
                <Link
                  to={pathTo(org.slug, "resources", preview.deploymentId)}
                  className="text-accent underline"
                >
                  Its deployment
                </Link>
              )}
              {preview.branchId !== null && (
                <Link to={pathTo(org.slug, "resources", preview.branchId)} className="text-accent underline">
                  Its database
                </Link>
              )}
            </p>
            <span className="flex flex-wrap gap-2">
              {preview.fork && !preview.trusted && (
                <Gated by={Previews.endpoints.approve} what="Approving its commit">
                  <Button look="main" onClick={() => ask({ what: "approve", commit: preview.commit })}>
                    Approve this commit
                  </Button>
                </Gated>
              )}
              <Gated by={Previews.endpoints.close} what="Closing it">
                <Button onClick={() => ask({ what: "close" })}>Close</Button>
              </Gated>
            </span>
          </div>
          <Confirm
            {...dialog}
            open={asked?.what === "approve"}
            look="danger"
            title={`Approve ${approved.slice(0, 12)}`}
            says={`This commit is in somebody else's repository. Once approved, its code runs with the variables of previews and with their data. Look at what it does first. A later commit of #${preview.pullRequest} has to be approved anew.`}
            action="Approve this commit"
            confirmed={() =>
              run((headers) => previews.approve({ params, headers, payload: { commit: approved } }))
            }
          />
          <Confirm
            {...dialog}
            open={asked?.what === "close"}
            look="danger"
            title={`Close the preview of #${preview.pullRequest}`}
            says="Its environment is deleted with everything in it: the app, its variables, its copy of a database. The pull request stays as it is."
            action="Close it"
            confirmed={() => run(() => previews.close({ params, headers: {} }))}
          />
        </>
      )}
    </Answered>
  )
}
