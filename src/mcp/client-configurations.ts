/**
 * What makes known MCP clients use the endpoint: an address for those that speak HTTP and sign in themselves, a program
 * to start for the others. No token is ever part of it.
 */
import { fileURLToPath } from "node:url"

interface Configuration {
  readonly title: string
  /** Where it goes, or what to do with it. */
  readonly where: string
  readonly text: string
}

const program = fileURLToPath(new URL("../cli/svc.mjs", import.meta.url))
const asJson = (value: unknown) => JSON.stringify(value, null, 2)

export const clients = [
  "claude-code",
  "claude-desktop",
  "codex",
  "cursor",
  "gemini",
  "stdio",
  "vscode",
  "windsurf"
] as const

export const configurations = (apiUrl: string): Readonly<Record<(typeof clients)[number], Configuration>> => {
  const url = `${apiUrl}/mcp`
  // Programs with windows do not have the path of a shell.
  const bridge = { command: process.execPath, args: [program, "mcp", "serve", "--api-url", apiUrl] }
  return {
    "claude-code": {
      title: "Claude Code",
      where: "Run it, then sign in with /mcp",
      text: `claude mcp add --transport http svc ${url}`
    },
    "claude-desktop": {
      title: "Claude Desktop",
      where: "claude_desktop_config.json; sign in with: svc mcp login",
      text: asJson({ mcpServers: { svc: bridge } })
    },
    codex: {
      title: "Codex",
      where: "~/.codex/config.toml; sign in with: codex mcp login svc",
      text: `[mcp_servers.svc]\nurl = ${JSON.stringify(url)}`
    },
    cursor: {
      title: "Cursor",
      where: ".cursor/mcp.json, or ~/.cursor/mcp.json",
      text: asJson({ mcpServers: { svc: { url } } })
    },
    gemini: {
      title: "Gemini CLI",
      where: "~/.gemini/settings.json; sign in with /mcp auth svc",
      text: asJson({ mcpServers: { svc: { httpUrl: url } } })
    },
    stdio: {
      title: "Any client that starts programs",
      where: "Sign in with: svc mcp login",
      text: [bridge.command, ...bridge.args].map(quoted).join(" ")
    },
    vscode: {
      title: "Visual Studio Code",
      where: ".vscode/mcp.json",
      text: asJson({ servers: { svc: { type: "http", url } } })
    },
    windsurf: {
      title: "Windsurf",
      where: "~/.codeium/windsurf/mcp_config.json",
      text: asJson({ mcpServers: { svc: { serverUrl: url } } })
    }
  }
}

/** For a POSIX shell. */
const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
