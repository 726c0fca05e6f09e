/** The environment of programs that help for a moment: our own without our settings, some of which are secrets. */
export const helperEnvironment = (more: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("SVC_"))),
  ...more
})
