/** A peer of the API: fastify and postgres.js, as most would write it. */
import { fastify } from "fastify"
import { answerTo } from "./peer-statements.ts"

const app = fastify()
app.get("/health", () => ({ ok: true }))
app.get("/v1/orgs/:org/projects", async (request, reply) => {
  const { status, body } = await answerTo(request.headers.authorization, undefined)
  return reply.status(status).send(body)
})
app.post<{ Body: { slug: string } }>(
  "/v1/orgs/:org/projects/:project/environments",
  { schema: { body: { type: "object", required: ["slug"], properties: { slug: { type: "string" } } } } },
  async (request, reply) => {
    const { status, body } = await answerTo(request.headers.authorization, request.body)
    return reply.status(status).send(body)
  }
)
await app.listen({ port: Number(process.env["PEER_PORT"]), host: "127.0.0.1" })
process.once("SIGTERM", () => process.exit(0))
