/**
 * Real repositories behind a real https server, whose certificate the platform's own authority signed: `git http-backend`
 * answers. It can want a token, and answer by itself instead.
 */
import { execFile, spawn } from "node:child_process"
import * as fs from "node:fs"
import type * as http from "node:http"
import * as https from "node:https"
import * as os from "node:os"
import * as path from "node:path"
import { promisify } from "node:util"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"

/** What stands at a path of a commit: text, a program, or where a link leads. */
export type Content = string | Buffer | { readonly program: string } | { readonly link: string }

export interface GitServer {
  readonly port: number
  /** Of a repository, `owner/name` below which it stands. */
  readonly url: (name: string, host?: string) => string
  /** Makes a bare repository with the branch `main` and no commits. */
  readonly create: (name: string) => Effect.Effect<Repo>
  /** Requests with a body or without, as they came. */
  readonly requests: Array<{
    readonly method: string
    readonly url: string
    readonly password: string | undefined
  }>
  /** Of the repositories whose name it is; others want none. */
  readonly tokens: Map<string, string>
  /** Undefined: the backend answers. */
  instead: ((request: http.IncomingMessage, response: http.ServerResponse) => boolean) | undefined
}

export interface Repo {
  readonly name: string
  readonly dir: string
  /** Adds a commit of exactly these files to a branch, and answers its id. */
  readonly commit: (
    files: Readonly<Record<string, Content>>,
    options?: {
      readonly branch?: string
      /** Submodules by path, with their commits. */
      readonly links?: Readonly<Record<string, string>>
    }
  ) => Effect.Effect<string>
  readonly git: (args: ReadonlyArray<string>, input?: string | Buffer) => Effect.Effect<string>
}

const run = promisify(execFile)
const environment = (home: string) => ({
  PATH: process.env["PATH"],
  HOME: home,
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_AUTHOR_NAME: "Ada",
  GIT_AUTHOR_EMAIL: "ada@example.test",
  GIT_COMMITTER_NAME: "Ada",
  GIT_COMMITTER_EMAIL: "ada@example.test"
})

export const gitServer: Effect.Effect<GitServer, never, Scope.Scope | CertificateAuthority> = Effect.gen(
  function* () {
    const root = yield* Effect.acquireRelease(
      Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-git-"))),
      (folder) => Effect.sync(() => fs.rmSync(folder, { recursive: true, force: true }))
    )
    const authority = yield* CertificateAuthority
    const hosts = ["localhost", "127.0.0.1", "git.example.test", "sub.example.test"] as const
    const issued = yield* Effect.orDie(authority.issue({ hosts }))
    const self: Omit<GitServer, "port"> = {
      requests: [],
      tokens: new Map(),
      instead: undefined,
      url: (name, host = "127.0.0.1") => `https://${host}:${port}/${name}.git`,
      create: (name) =>
        Effect.promise(async () => {
          const dir = path.join(root, `${name}.git`)
          fs.mkdirSync(dir, { recursive: true })
          await run("git", ["init", "-q", "--bare", "-b", "main", dir], { env: environment(root) })
          return repoAt(root, name, dir)
        })
    }
    const server = https.createServer(
      { cert: issued.certificatePem, key: Redacted.value(issued.privateKeyPem) },
      (request, response) => {
        const url = request.url ?? "/"
        const pair = Buffer.from((request.headers.authorization ?? "").replace(/^Basic /, ""), "base64")
        const password =
          request.headers.authorization === undefined ? undefined : pair.toString().split(":")[1]
        self.requests.push({ method: request.method ?? "", url, password })
        if (self.instead?.(request, response) === true) return
        const name = /^\/(.*)\.git\//.exec(url)?.[1] ?? ""
        const wanted = self.tokens.get(name)
        if (wanted !== undefined && wanted !== password) {
          response.writeHead(401, { "WWW-Authenticate": 'Basic realm="git"' }).end()
          return
        }
        backend(root, request, response)
      }
    )
    yield* Effect.acquireRelease(
      Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()))),
      () =>
        Effect.promise(
          () =>
            new Promise<void>((resolve) => {
              server.close(() => resolve())
              server.closeAllConnections()
            })
        )
    )
    const address = server.address()
    const port = typeof address === "object" && address !== null ? address.port : 0
    return Object.assign(self, { port })
  }
)

/** See git-http-backend(1) and RFC 3875. */
const backend = (root: string, request: http.IncomingMessage, response: http.ServerResponse) => {
  const url = new URL(request.url ?? "/", "https://server")
  const child = spawn("git", ["http-backend"], {
    env: {
      ...environment(root),
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: "1",
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      HTTP_CONTENT_ENCODING: request.headers["content-encoding"] ?? "",
      GIT_PROTOCOL: String(request.headers["git-protocol"] ?? "")
    }
  })
  request.pipe(child.stdin).on("error", () => {})
  response.on("close", () => child.kill("SIGKILL"))
  let head = Buffer.alloc(0)
  let begun = false
  child.stdout.on("data", (chunk: Buffer) => {
    if (begun) return void response.write(chunk)
    head = Buffer.concat([head, chunk])
    const at = head.indexOf("\r\n\r\n")
    if (at === -1) return
    begun = true
    const lines = head
      .toString("latin1", 0, at)
      .split("\r\n")
      .map((line) => line.split(/: ?/, 2))
    const headers = Object.fromEntries(lines.filter(([name]) => name !== "Status"))
    const status = lines.find(([name]) => name === "Status")?.[1]
    response.writeHead(status === undefined ? 200 : Number(status.slice(0, 3)), headers)
    response.write(head.subarray(at + 4))
  })
  child.stdout.on("end", () => response.end())
}

const repoAt = (root: string, name: string, dir: string): Repo => {
  const git = async (
    args: ReadonlyArray<string>,
    input?: string | Buffer,
    env: Record<string, string> = {}
  ) => {
    const child = run("git", ["-C", dir, ...args], {
      env: { ...environment(root), ...env },
      maxBuffer: 64 * 1024 * 1024
    })
    child.child.stdin?.on("error", () => {}).end(input ?? "")
    return (await child).stdout.trim()
  }
  const commit: Repo["commit"] = (files, { branch = "main", links = {} } = {}) =>
    Effect.promise(async () => {
      const index = { GIT_INDEX_FILE: path.join(dir, `index-${branch.replaceAll("/", "-")}`) }
      fs.rmSync(index.GIT_INDEX_FILE, { force: true })
      const entries: Array<string> = []
      for (const [file, content] of Object.entries(files)) {
        const plain = typeof content === "string" || Buffer.isBuffer(content)
        const [mode, data] = plain
          ? ["100644", content]
          : "link" in content
            ? ["120000", content.link]
            : ["100755", content.program]
        entries.push(`${mode} ${await git(["hash-object", "-w", "--stdin"], data)}\t${file}`)
      }
      for (const [file, id] of Object.entries(links)) entries.push(`160000 ${id}\t${file}`)
      await git(["update-index", "--index-info"], `${entries.join("\n")}\n`, index)
      const tree = await git(["write-tree", "--missing-ok"], "", index)
      const ref = `refs/heads/${branch}`
      const before = await git(["rev-parse", "--verify", "-q", ref]).catch(() => "")
      const parents = before === "" ? [] : ["-p", before]
      const id = await git(["commit-tree", "-m", "A change", ...parents, tree])
      await git(["update-ref", ref, id])
      return id
    })
  return { name, dir, commit, git: (args, input) => Effect.promise(() => git(args, input)) }
}
