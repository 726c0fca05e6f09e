/** Words for a fault where only certain values may stand: which. By itself the library names the type, or nothing. */
import * as SchemaAST from "effect/SchemaAST"
import type * as SchemaIssue from "effect/SchemaIssue"

/** Undefined: it is not about a value of a list. */
export const allowedValues = (issue: SchemaIssue.Issue): string | undefined =>
  issue._tag === "InvalidType" || (issue._tag === "AnyOf" && issue.issues.length === 0)
    ? (oneOf(valuesOf(issue.ast)) ?? discriminated(issue.ast))
    : undefined

const oneOf = (values: ReadonlyArray<string> | undefined): string | undefined =>
  values === undefined
    ? undefined
    : values.length === 1
      ? `must be ${values[0]}`
      : `must be one of ${values.join(", ")}`

/** The values of a literal, of null, or of a union of only such. */
const valuesOf = (ast: SchemaAST.AST): ReadonlyArray<string> | undefined => {
  if (SchemaAST.isLiteral(ast))
    return [typeof ast.literal === "bigint" ? `${ast.literal}` : JSON.stringify(ast.literal)]
  if (SchemaAST.isNull(ast)) return ["null"]
  if (!SchemaAST.isUnion(ast)) return undefined
  const values: Array<string> = []
  for (const type of ast.types) {
    const inner = valuesOf(type)
    if (inner === undefined) return undefined
    values.push(...inner)
  }
  return values
}

/** A union of maps that differ in the value of one key. */
const discriminated = (ast: SchemaAST.AST): string | undefined => {
  if (!SchemaAST.isUnion(ast)) return undefined
  const members = ast.types.map((type) =>
    SchemaAST.isObjects(type)
      ? new Map(type.propertySignatures.map((one) => [String(one.name), valuesOf(one.type)]))
      : undefined
  )
  for (const key of members[0]?.keys() ?? []) {
    const values = members.map((member) => member?.get(key))
    if (values.every((value) => value !== undefined)) {
      return `must be a map whose "${key}" is one of ${values.flat().join(", ")}`
    }
  }
  return undefined
}
