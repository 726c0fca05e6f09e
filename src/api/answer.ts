/**
 * Answers to reads, which are most requests. What a view makes is plain JSON and typed as the written-out form of its
 * schema, so the framework's encoder would only copy it: a tenth of the time of a list. Tests hold the answers of
 * every operation against their schemas.
 */
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import type { ResourceRecord } from "#src/store/records.ts"
import { etagOf } from "./views.ts"

/** `record` gives the answer its ETag. */
export const answer = <S extends { readonly Encoded: unknown }>(
  _schema: S,
  body: S["Encoded"],
  record?: Pick<ResourceRecord, "revision">
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe(body, record === undefined ? {} : { headers: { etag: etagOf(record) } })
