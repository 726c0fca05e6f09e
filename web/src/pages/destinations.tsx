/** Object storage of the organization's own, where copies of backups are kept. */
import { useState } from "react"
import { BackupDestinations } from "#src/backups/destinations/api.ts"
import { organization } from "../api/organization.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { Code, Head, Panel } from "../parts/panel.tsx"
import { Table } from "../parts/table.tsx"
import { Ago } from "../parts/time.tsx"
import { pathTo } from "../router.ts"

const nothing = { name: "", endpoint: "", bucket: "", prefix: "", region: "", id: "", secret: "" }

export const DestinationsPage = () => {
  const { org } = useCaller()
  const { all } = useLive()
  const params = { orgId: org.slug }
  const answer = useAnswer(
    `destinations ${org.slug}`,
    () => organization.backupDestinations.list({ params }),
    all
      .filter(({ kind }) => kind === "BackupDestination")
      .map(({ revision }) => revision)
      .join(" ")
  )
  const { asked, ask, run, dialog } = useDecision<"create">(answer.again)
  const [given, setGiven] = useState(nothing)
  const field = (name: keyof typeof nothing) => ({
    value: given[name],
    changed: (value: string) => setGiven({ ...given, [name]: value })
  })
  const { name, endpoint, bucket, prefix, region, id, secret } = given
  return (
    <>
      <Head title="Backup destinations">
        <Gated by={BackupDestinations.endpoints.create} what="Adding a destination">
          <Button
            look="main"
            onClick={() => {
              setGiven(nothing)
              ask("create")
            }}
          >
            Add a destination
          </Button>
        </Gated>
      </Head>
      <Panel>
        <Answered of={answer} what="destinations">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Destinations"
              empty={
                <>
                  <p>
                    Backups are kept on this machine only. A bucket of your own, at any service that speaks
                    S3, keeps a copy of them:
                  </p>
                  <Code>
                    svc destinations create offsite --endpoint https://s3.example.com --bucket backups
                    --access-key-id ID
                  </Code>
                  <p className="mt-3">A database names it by its id in the manifest:</p>
                  <Code>
                    {
                      "databases:\n  - name: main\n    sku: db-n1\n    region: local\n    backup: { destinationIds: [ID] }"
                    }
                  </Code>
                </>
              }
              columns={[
                {
                  head: "Name",
                  look: "written",
                  cell: ({ id, name }) => (
                    <Link to={pathTo(org.slug, "resources", id)} className="font-medium hover:underline">
                      {name}
                    </Link>
                  )
                },
                {
                  head: "Bucket",
                  look: "code",
                  cell: ({ endpoint, bucket, prefix }) => `${endpoint} ${bucket} ${prefix}`
                },
                {
                  head: "State",
                  look: "written",
                  cell: ({ status, fault }) => (
                    <>
                      <span className={status === "failed" ? "text-bad" : ""}>{status}</span>{" "}
                      <span className="text-soft">{fault?.message}</span>
                    </>
                  )
                },
                {
                  head: "Tested",
                  cell: ({ lastTestedAt }) =>
                    lastTestedAt === null ? (
                      "never"
                    ) : (
                      <>
                        <Ago at={lastTestedAt} /> ago
                      </>
                    )
                },
                { head: "Id", look: "code", cell: ({ id }) => id }
              ]}
            />
          )}
        </Answered>
      </Panel>
      <Confirm
        {...dialog}
        open={asked === "create"}
        title="Add a destination"
        says="A test object is written, read and deleted there first; if that fails nothing is stored. The key is stored encrypted and never shown."
        action="Test and add it"
        ready={name !== "" && endpoint.startsWith("https://") && bucket !== "" && id !== "" && secret !== ""}
        confirmed={() =>
          run((headers) =>
            organization.backupDestinations.create({
              params,
              headers,
              payload: {
                name,
                endpoint,
                bucket,
                ...(prefix === "" ? {} : { prefix }),
                ...(region === "" ? {} : { region }),
                credentials: { accessKeyId: id, secretAccessKey: secret }
              }
            })
          )
        }
      >
        <Field label="Name" {...field("name")} maxLength={63} autoComplete="off" />
        <Field label="Address of the service" type="url" placeholder="https://" {...field("endpoint")} />
        <Field label="Bucket" {...field("bucket")} autoComplete="off" />
        <Field label="What keys begin with" {...field("prefix")} hint="Empty: nothing." />
        <Field label="Region" {...field("region")} hint="Empty where the service has none." />
        <Field label="Access key id" {...field("id")} autoComplete="off" spellCheck={false} />
        <Field label="Secret access key" type="password" {...field("secret")} autoComplete="new-password" />
      </Confirm>
    </>
  )
}
