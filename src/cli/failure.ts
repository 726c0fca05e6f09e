/**
 * How a command ends. The codes are stable: scripts branch on them. 0 is success; 2 also means "there are changes"
 * where a command says so; a command that is interrupted ends with 130.
 */
import * as Data from "effect/Data"
import type { ProblemBody } from "#src/api/definition/problem.ts"
import { visibleLine } from "./visible.ts"

export const exitCodes = {
  failure: 1,
  usage: 2,
  authentication: 4,
  notFound: 5,
  conflict: 6,
  timeout: 7,
  interrupted: 130
} as const

/** Ends the program with this code after saying this. An empty message says nothing more. */
export class CliFailure extends Data.TaggedError("CliFailure")<{
  readonly exitCode: number
  readonly message: string
}> {}

export const failure = (message: string, exitCode: number = exitCodes.failure): CliFailure =>
  new CliFailure({ message, exitCode })

export const cancelled = failure("Cancelled; nothing was changed", exitCodes.usage)

export const fromProblem = (problem: ProblemBody): CliFailure => {
  const lines = [
    `${problem.title}: ${problem.detail}`,
    ...(problem.errors ?? []).map(({ pointer, message, line, column }) => {
      const place = line === undefined ? "" : `${line}:${column ?? 1}  `
      return `  ${place}${pointer === "" ? "/" : pointer}  ${message}`
    }),
    ...(problem.addresses ?? []).map((address) => `  ${address}`),
    ...(problem.status === 401
      ? ["Sign in with svc login (svc login --api-key where nobody is at a browser), or set SVC_TOKEN"]
      : []),
    ...(problem.status >= 500 ? [`Request ${problem.requestId}`] : [])
  ]
  return failure(lines.map(visibleLine).join("\n"), codeOf(problem.status))
}

export const codeOf = (status: number): number => {
  switch (status) {
    case 401:
      return exitCodes.authentication
    case 404:
      return exitCodes.notFound
    case 409:
    case 412:
      return exitCodes.conflict
    default:
      return status >= 400 ? exitCodes.failure : 0
  }
}
