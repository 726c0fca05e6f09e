/**
 * Acts on a managed server that are statements to it: its configuration is read again, the application has its role and
 * its database, nobody else is let in, standbys have slots.
 */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type { Assigned, PostgresActs, PostgresTarget } from "./assigned.ts"
import { type PostgresEndpoint, tellServer } from "./PostgresControl.ts"
import { scramVerifier } from "./scram.ts"
import { appDatabase, appUser, controlDatabase, extensionSchema } from "./settings.ts"

interface Parts extends Pick<PostgresActs, "act" | "writeAssigned"> {
  readonly endpoint: (now: Assigned) => PostgresEndpoint
}

export const makeStatements = ({ act, endpoint, writeAssigned }: Parts) => {
  const tell = (name: string, target: PostgresTarget, text: string) =>
    act(name, target, (now) => tellServer(endpoint(now), text))

  return {
    disconnect: (target: PostgresTarget, credentialVersion: number) =>
      act("postgres.disconnect", target, (now) =>
        Effect.andThen(
          tellServer(endpoint(now), endSessions),
          writeAssigned(target.uid, { ...now, credentialVersion })
        )
      ),
    makeSlot: (target: PostgresTarget, slot: string, anew: boolean) =>
      tell(
        "postgres.makeSlot",
        target,
        `${anew ? dropSlot(slot) : ""}
         select pg_create_physical_replication_slot('${slot}', true)
         where not exists (select from pg_replication_slots where slot_name = '${slot}')`
      ),
    dropSlots: (target: PostgresTarget, slots: ReadonlyArray<string>) =>
      tell("postgres.dropSlots", target, slots.map(dropSlot).join("")),
    reload: (target: PostgresTarget) => tell("postgres.reload", target, "select pg_reload_conf()"),
    setRole: (target: PostgresTarget, roleExists: boolean, password: Redacted.Redacted) =>
      Effect.flatMap(scramVerifier(password), (verifier) => {
        // A verifier holds nothing that needs escaping.
        const role = `role ${appUser} with login inherit nosuperuser nocreatedb nocreaterole noreplication nobypassrls password '${verifier}'`
        return tell(
          "postgres.setRole",
          target,
          roleExists
            ? `alter ${role}`
            : // Set once: from then on the path is the application's to choose.
              `create ${role}; alter role ${appUser} set search_path = "$user", public, ${extensionSchema}`
        )
      }).pipe(Effect.andThen(tell("postgres.disconnect", target, endSessions))),

    createDatabase: (target: PostgresTarget) =>
      tell(
        "postgres.createDatabase",
        target,
        `create database ${appDatabase} owner ${appUser} template ${controlDatabase}`
      ),

    closeDatabases: (target: PostgresTarget) =>
      tell(
        "postgres.closeDatabases",
        target,
        `do $$ declare name text; begin
          for name in select datname from pg_database where datallowconn loop
            execute format('revoke all on database %I from public', name);
          end loop;
        end $$`
      ),

    createExtension: (target: PostgresTarget) =>
      tell(
        "postgres.createExtension",
        target,
        `create schema if not exists ${extensionSchema};
         grant usage on schema ${extensionSchema} to public;
         create extension if not exists pg_stat_statements schema ${extensionSchema}`
      )
  }
}

const endSessions = `select pg_terminate_backend(pid) from pg_stat_activity where usename = '${appUser}'`

/** A slot that somebody uses stays: whoever it is ends first. Names are made by the platform. */
const dropSlot = (slot: string) =>
  `select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '${slot}' and not active;`
