/** What a fault is called by the operating system (`ENOENT`), by Node, or by Postgres (`57P03`). */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined
