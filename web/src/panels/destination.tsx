/** A backup destination: whether it can be written, read and deleted at, and its key, which is never shown. */
import { useState } from "react"
import { BackupDestinations } from "#src/backups/destinations/api.ts"
import { organization } from "../api/organization.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Problem } from "../parts/problem.tsx"
import { Ago } from "../parts/time.tsx"
import type { OrganizationServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

const { backupDestinations } = organization

export const DestinationPanel = ({ resource }: OrganizationServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, destinationId: resource.uid }
  const answer = useAnswer(
    `destination ${resource.uid}`,
    () => backupDestinations.get({ params }),
    resource.revision
  )
  const { asked, ask, run, acting, failure, dialog } = useDecision<"key" | "delete">(answer.again)
  const [id, setId] = useState("")
  const [secret, setSecret] = useState("")
  const [name, setName] = useState("")
  return (
    <>
      <Answered of={answer} what="the destination">
        {({ body: destination }) => (
          <>
            <Tiles>
              <Tile value={destination.status} says="state" bad={destination.status === "failed"} />
              <Tile value={destination.bucket} says="bucket" />
              <Tile
                value={destination.lastTestedAt === null ? "never" : <Ago at={destination.lastTestedAt} />}
                says="since it was tested"
              />
              <Tile value={destination.version} says="version of its configuration" />
            </Tiles>
            {destination.fault !== null && (
              <p className="mt-2 text-bad wrap-anywhere" dir="auto">
                {destination.fault.message}
              </p>
            )}
            <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
              <code className="min-w-0 font-mono text-[12.5px] wrap-anywhere">
                {destination.endpoint} {destination.prefix}
              </code>
              <span className="flex flex-wrap gap-2">
                <Gated by={BackupDestinations.endpoints.test} what="Testing it">
                  <Button
                    busy={acting}
                    title="Writes, reads and deletes a temporary object there."
                    onClick={() => run((headers) => backupDestinations.test({ params, headers }))}
                  >
                    Test now
                  </Button>
                </Gated>
                <Gated by={BackupDestinations.endpoints.update} what="Replacing its key">
                  <Button
                    onClick={() => {
                      setId("")
                      setSecret("")
                      ask("key")
                    }}
                  >
                    Replace its key
                  </Button>
                </Gated>
                <Gated by={BackupDestinations.endpoints.delete} what="Deleting it">
                  <Button
                    className="text-bad!"
                    onClick={() => {
                      setName("")
                      ask("delete")
                    }}
                  >
                    Delete
                  </Button>
                </Gated>
              </span>
            </div>
          </>
        )}
      </Answered>
      {failure !== undefined && <Problem failure={failure} />}
      <Confirm
        {...dialog}
        open={asked === "key"}
        title={`Replace the key of ${resource.name}`}
        says="The new one is tested first; if it does not work nothing changes. It is stored encrypted and never shown."
        action="Test and replace it"
        ready={id !== "" && secret !== ""}
        confirmed={() =>
          run(() =>
            backupDestinations.update({
              params,
              headers: {},
              payload: { credentials: { accessKeyId: id, secretAccessKey: secret } }
            })
          )
        }
      >
        <Field label="Access key id" value={id} changed={setId} autoComplete="off" spellCheck={false} />
        <Field
          label="Secret access key"
          type="password"
          value={secret}
          changed={setSecret}
          autoComplete="new-password"
        />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked === "delete"}
        look="danger"
        title={`Delete ${resource.name}`}
        says="Nothing is copied there any more. What is stored there stays, and can be restored while a database needs it. It is refused while a database's policy names it."
        action="Delete it"
        ready={name === resource.name}
        confirmed={() => run(() => backupDestinations.delete({ params, headers: {} }))}
      >
        <Field
          label="Name, to confirm"
          value={name}
          changed={setName}
          hint={`Type ${resource.name}.`}
          autoComplete="off"
        />
      </Confirm>
    </>
  )
}
