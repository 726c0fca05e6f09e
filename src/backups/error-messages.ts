/**
 * What is told to people about a fault of this machine or of a server: a sentence and a code. What the system said
 * itself names folders and addresses here, which are nobody else's business; it goes to the log.
 */
import * as Schema from "effect/Schema"
import { codeOf } from "#src/infra/error-code.ts"
import { PostgresServerError } from "#src/infra/postgres/error.ts"
import { PostgresControlError } from "#src/infra/postgres/PostgresControl.ts"
import { RecoveryError } from "#src/infra/postgres/recovery.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"

const meanings: Readonly<Record<string, string>> = {
  ENOENT: "it is not there",
  ENOSPC: "the disk is full",
  EDQUOT: "the disk is full",
  EACCES: "it is not allowed",
  EPERM: "it is not allowed",
  EROFS: "the disk can only be read",
  EIO: "the disk is broken",
  EMFILE: "too many files are open",
  ENFILE: "too many files are open"
}

/** Of a call of the operating system. */
export const systemFault = (error: unknown): string => {
  const code = codeOf(error)
  if (code === undefined || !/^E[A-Z0-9]{2,15}$/.test(code)) return "the machine does not do it"
  return `${meanings[code] ?? "the machine does not do it"} (${code})`
}

const isControl = Schema.is(PostgresControlError)
const isRecovery = Schema.is(RecoveryError)
const isStore = Schema.is(StoreUnavailable)
const isServer = Schema.is(PostgresServerError)

/** Of a server, or of what is done with its files. */
export const serverFault = (error: unknown): string => {
  if (isControl(error)) {
    if (error.code === "drill") return error.message
    if (error.code === "timeout") return "The database server did not answer in time"
    const code = codeOf(error.code === "backup" ? error.cause : error) ?? ""
    return `The database server refused, or did not answer${/^[0-9A-Z_]{5,15}$/.test(code) ? ` (${code})` : ""}`
  }
  if (isRecovery(error)) {
    return isControl(error.cause) && error.cause.code === "drill"
      ? error.cause.message
      : "The restored server did not come to the end of its recovery"
  }
  if (isStore(error)) return "The state store did not answer"
  if (isServer(error)) return serverFault(error.cause)
  return `The database's server or its files cannot be used: ${systemFault(error)}`
}

/** For the log. */
export const detailOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.cause === undefined || error.cause === null
    ? error.message
    : `${error.message}: ${detailOf(error.cause)}`
}
