/** Statements on the server of the run, each on a connection of its own, as its owner. */
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"

export const asAdministrator =
  (serverUrl: string) =>
  <Row extends object>(statement: string) =>
    Effect.scoped(
      Effect.flatMap(
        PgClient.makeClient({ url: Redacted.make(serverUrl), connectTimeout: "1 minute" }),
        (sql) => sql.unsafe<Row>(statement)
      )
    ).pipe(Effect.provide(Reactivity.layer))
