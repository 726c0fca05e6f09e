/** Dockerfiles as data, and what their instructions come to. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { pipeline } from "node:stream/promises"
import { afterAll, assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import { extract } from "tar-stream"
import { copyArchive, makePlaceOf } from "#src/builds/dockerfile/copy.ts"
import { expand } from "#src/builds/dockerfile/expand.ts"
import { areFew, longestPatterns, makeBeginning, makeIgnores } from "#src/builds/dockerfile/glob.ts"
import { parseDockerfile } from "#src/builds/dockerfile/parse.ts"
import { resolve } from "#src/builds/dockerfile/resolve.ts"
import { type Entry, file, folder, link, tar } from "./archives.ts"

const place = fs.mkdtempSync(path.join(os.tmpdir(), "svc-dockerfile-"))
afterAll(() => fs.rmSync(place, { recursive: true }))

const stages = (text: string) => Result.getOrThrow(parseDockerfile(text))
const refusal = (text: string) =>
  Result.match(parseDockerfile(text), { onSuccess: () => "taken", onFailure: ({ message }) => message })
const image = { env: { PATH: "/bin" }, user: "", workdir: "", entrypoint: ["run"], cmd: ["it"] }

describe("a Dockerfile", () => {
  it("is read with its stages, continued lines and both forms of commands", () => {
    const [first, second] = stages(`# syntax=docker/dockerfile:1
ARG VERSION=26
FROM node:\${VERSION}-slim AS base
WORKDIR /app
FROM base AS build
COPY --chown=node:node package.json \\
  package-lock.json ./
RUN npm ci && \\
    npm run build
CMD ["node", "server.js"]
`)
    assert.strictEqual(first?.from, "node:26-slim")
    assert.deepStrictEqual(second, {
      from: "node:26-slim",
      instructions: [
        { do: "workdir", line: 4, folder: "/app" },
        {
          do: "copy",
          line: 6,
          from: null,
          sources: ["package.json", "package-lock.json"],
          target: "./",
          owner: "node:node"
        },
        { do: "run", line: 8, command: ["/bin/sh", "-c", "npm ci &&     npm run build"] },
        { do: "cmd", line: 10, command: ["node", "server.js"] }
      ]
    })
  })

  it("is refused by the name and the line of what is not done", () => {
    const cases: ReadonlyArray<readonly [string, RegExp]> = [
      // CVE-2024-1753 and CVE-2024-9675, as they were told to a builder.
      ["FROM a\nRUN --mount=type=bind,from=b,source=/,target=/host,rw ls /host", /line 2: RUN --mount/],
      ["FROM a\nRUN --mount=type=cache,id=../../../..,target=/host ls /host", /line 2: RUN --mount/],
      ["FROM a\nRUN --network=host wget x", /line 2: RUN --network/],
      ["FROM a\nRUN --security=insecure x", /line 2: RUN --security/],
      ["FROM a\n\nADD http://127.0.0.1:8787/ /x", /line 3: ADD takes files of the source only/],
      ["FROM a\nADD git@example.com:a/b.git /x", /line 2: ADD/],
      ["FROM a\nADD x.tar.gz /x", /line 2: ADD of an archive/],
      ["FROM a\nCOPY ../x /x", /line 2: COPY leads out/],
      ["FROM a\nCOPY <<EOF /x\nhello\nEOF\n", /line 2: COPY with a here-document/],
      ["FROM a\nRUN <<EOF\nls\nEOF\n", /line 2: RUN with a here-document/],
      ["FROM a\nCOPY --from=3 x /x", /line 2: COPY --from=3/],
      ["FROM a\nCOPY --chmod=755 x /x", /line 2: COPY --chmod/],
      ["FROM a\nVOLUME /data", /line 2: VOLUME/],
      ["FROM a\nHEALTHCHECK CMD x", /line 2: HEALTHCHECK/],
      ["FROM a\nONBUILD RUN x", /line 2: ONBUILD/],
      ['FROM a\nSHELL ["x"]', /line 2: SHELL/],
      ["FROM --platform=linux/arm64 a", /line 1: FROM --platform/],
      ["FROM scratch", /line 1: FROM scratch/],
      ["FROM A_B!", /line 1: FROM names no image/],
      ["RUN x", /line 1: RUN comes before FROM/],
      ["", /has no FROM/],
      [`FROM a\n${"RUN x\n".repeat(300)}`, /more than 200/]
    ]
    for (const [text, expected] of cases) assert.match(refusal(text), expected, text.slice(0, 80))
  })

  it("puts in variables as they stand at their line", () => {
    const [stage] = stages(`FROM a
ARG MODE=fast
ENV HOME_DIR=/srv PATH="$PATH:/srv/bin"
WORKDIR $HOME_DIR
WORKDIR app
RUN one
ENV NODE_ENV=production
USER 7
RUN two
COPY a b ./to
`)
    const { operations, result } = resolve(stage ?? { from: "", instructions: [] }, image)
    const runs = operations.filter((one) => one.do === "run")
    assert.deepStrictEqual(
      runs.map(({ env, unset, user, workdir }) => [env["NODE_ENV"], env["MODE"], unset, user, workdir]),
      [
        [undefined, "fast", ["NODE_ENV"], "", "/srv/app"],
        ["production", "fast", [], "7", "/srv/app"]
      ]
    )
    const copy = operations.at(-1)
    assert.deepStrictEqual(copy?.do === "copy" ? [copy.sources, copy.target, copy.isFolder] : copy, [
      ["a", "b"],
      "/srv/app/to",
      true
    ])
    assert.deepStrictEqual(result, {
      env: { PATH: "/bin:/srv/bin", HOME_DIR: "/srv", NODE_ENV: "production" },
      user: "7",
      workdir: "/srv/app",
      entrypoint: ["run"],
      cmd: ["it"]
    })
  })

  it("gives commands the values of arguments, and shows them in no name", () => {
    const text = `FROM a
RUN before
ARG TOKEN=none
ARG COPIED=\${TOKEN}
ENV PUBLIC=\${TOKEN}
WORKDIR /srv/\${PUBLIC}
USER \${TOKEN}
COPY --chown=\${COPIED} a \${TOKEN}/
RUN after`
    const [stage] = Result.getOrThrow(parseDockerfile(text))
    const image = { env: {}, user: "", workdir: "", entrypoint: [], cmd: [] }
    const { operations } = resolve(stage!, image, { TOKEN: "secret", OTHER: "secret" })
    const [before, after] = operations.flatMap((one) => (one.do === "run" ? [one] : []))
    assert.deepStrictEqual(before?.env, {})
    assert.deepStrictEqual(after?.env, { TOKEN: "secret", COPIED: "secret", PUBLIC: "secret" })
    assert.notInclude(JSON.stringify(operations.filter((one) => one.do !== "run")), "secret")
    assert.deepStrictEqual([after?.user, after?.workdir], ["none", "/srv/none"])
  })

  it("has arguments and variables of any name, also of those that every object has", () => {
    const [stage] = stages(`FROM base
ARG constructor=one
ARG __proto__=two
ARG toString
ENV valueOf=\${constructor}-\${__proto__}-\${toString}-\${hasOwnProperty}
WORKDIR /\${constructor}
RUN true
ENV isPrototypeOf=later
`)
    const { operations, result } = resolve(stage!, image, {})
    assert.strictEqual(result.env["valueOf"], "one-two--")
    assert.strictEqual(result.workdir, "/one")
    const run = operations.find((one) => one.do === "run")
    assert.sameDeepMembers(Object.entries(run?.env ?? {}), [
      ["PATH", "/bin"],
      ["constructor", "one"],
      ["__proto__", "two"],
      ["toString", ""],
      ["valueOf", "one-two--"]
    ])
    assert.deepStrictEqual(run?.unset, ["isPrototypeOf"])
  })

  it("has a command of its own without the image's, once it has an entrypoint", () => {
    const [stage] = stages(`FROM a\nENTRYPOINT ["x"]`)
    const { result } = resolve(stage ?? { from: "", instructions: [] }, image)
    assert.deepStrictEqual([result.entrypoint, result.cmd], [["x"], []])
  })

  it("is refused when stages, variables or the whole of it are too much", () => {
    const many = Array.from({ length: 17 }, (_, index) => `FROM a AS s${index}`).join("\n")
    assert.match(refusal(many), /more than 16 stages/)
    const long = `FROM a AS s0\nRUN ${"x".repeat(200_000)}\n`
    assert.match(refusal(`${long}FROM s0 AS s1\nFROM s1 AS s2\n`), /too long with all of its stages/)
    const pairs = Array.from({ length: 1_001 }, (_, index) => `A${index}=1`).join(" ")
    assert.match(refusal(`FROM a\nENV ${pairs}\n`), /more than 1000 variables/)
    const doubling = Array.from({ length: 20 }, () => "ENV A=$A$A").join("\n")
    const [stage] = stages(`FROM a\nENV A=0123456789\n${doubling}\n`)
    assert.throws(
      () => resolve(stage ?? { from: "", instructions: [] }, image),
      /variables make a text of more/
    )
  })

  it("has no here-document, wherever it begins", () => {
    for (const line of ["RUN <<EOF", "RUN cat <<EOF > a", "RUN cat <<-'END'", 'COPY <<"E" /a'])
      assert.match(refusal(`FROM a\n${line}\n`), /line 2: \w+ with a here-document/)
    assert.lengthOf(stages(`FROM a\nRUN echo $((1<<2)) && cat <<< text\n`), 1)
  })

  it("expands what shells would of names", () => {
    const values = new Map([["A", "1"]])
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is what a Dockerfile holds
    assert.strictEqual(expand("$A ${A} ${B:-2} ${A:-3} ${A:+4} ${B:+5} $B \\$A", values), "1 1 2 1 4   $A")
  })
})

describe("copying", () => {
  it("keeps hard links to what is copied with them, and says of others that they are not", async () => {
    const [source, target] = [path.join(place, "c"), path.join(place, "d")]
    const entries = (linkname: string): ReadonlyArray<Entry> => [
      file("lib/a.js", "1"),
      { name: "lib/b.js", type: "link", linkname },
      file("other", "2")
    ]
    const copying = { sources: ["lib"], target: "/app", isFolder: false, uid: 7, gid: 8, ignored: "" }
    const copied = async (linkname: string) => {
      fs.writeFileSync(source, await tar(...entries(linkname)))
      await copyArchive(source, target, (name) => name, copying, new AbortController().signal)
      const seen: Array<ReadonlyArray<unknown>> = []
      const reader = extract()
      reader.on("entry", ({ name, type, linkname }, content, next) => {
        seen.push([name, type, linkname ?? null])
        content.resume().once("end", next)
      })
      await pipeline(fs.createReadStream(target), reader)
      return seen
    }
    assert.deepStrictEqual(await copied("lib/a.js"), [
      ["app/a.js", "file", null],
      ["app/b.js", "link", "app/a.js"]
    ])
    for (const linkname of ["other", "../../etc/passwd", "/etc/passwd"])
      assert.match(await copied(linkname).then(String, String), /a hard link to .* is not copied/)
  })

  it("puts files and the content of folders where COPY does", () => {
    const of = (
      sources: ReadonlyArray<string>,
      target: string,
      isFolder: boolean,
      name: string,
      isDirectory = false
    ) => makePlaceOf({ sources, target, isFolder })(name, isDirectory)
    assert.strictEqual(of(["."], "/app", false, "a/b.js"), "app/a/b.js")
    assert.strictEqual(of(["a"], "/app", false, "a/b.js"), "app/b.js")
    assert.strictEqual(of(["a"], "/app", false, "a", true), "")
    assert.strictEqual(of(["a.js"], "/app/b.js", false, "a.js"), "app/b.js")
    assert.strictEqual(of(["a.js"], "/app", true, "a.js"), "app/a.js")
    assert.strictEqual(of(["p*.json"], "/app", true, "package.json"), "app/package.json")
    assert.isUndefined(of(["p*.json"], "/app", true, "x/package.json"))
    assert.isUndefined(of(["a"], "/app", false, "ab/c"))
  })

  it("gives them the owner, and leaves out what is ignored", async () => {
    const entries: ReadonlyArray<Entry> = [
      folder("./"),
      file("web/a.js", "1", { mode: 0o755 }),
      file("web/secret.env", "2"),
      link("web/l", "a.js"),
      file("other", "3")
    ]
    const [source, target] = [path.join(place, "a"), path.join(place, "b")]
    fs.writeFileSync(source, await tar(...entries))
    const copying = { sources: ["."], target: "/app", isFolder: false, uid: 7, gid: 8, ignored: "*.env\n" }
    const nameOf = (name: string) => (name.startsWith("web/") ? name.slice(4) : undefined)
    assert.strictEqual(await copyArchive(source, target, nameOf, copying, new AbortController().signal), 2)
    const seen: Array<ReadonlyArray<unknown>> = []
    const reader = extract()
    reader.on("entry", ({ name, type, uid, gid, mode }, content, next) => {
      seen.push([name, type, uid, gid, mode])
      content.resume().once("end", next)
    })
    await pipeline(fs.createReadStream(target), reader)
    assert.deepStrictEqual(seen, [
      ["app/a.js", "file", 7, 8, 0o755],
      ["app/l", "symlink", 7, 8, 0o644]
    ])
  })
})

describe("patterns", () => {
  const long = "a".repeat(200)
  const stars = `${"*a".repeat(40)}b`

  // With regular expressions five stars took seconds, and each star more some twenty times as long.
  it("are compared in few steps, however many stars they have", () => {
    assert.isUndefined(makeBeginning(stars)(long))
    assert.isFalse(makeIgnores(`${stars}\n**/${stars}\n`)(`${long}/${long}`))
    assert.isFalse(makeIgnores(`${"**/a/".repeat(40)}b`)("a/".repeat(200)))
    assert.isTrue(makeIgnores(`${"**/a/".repeat(40)}b`)(`${"a/".repeat(200)}b`))
  })

  it("of a .dockerignore mean what Docker's do", () => {
    const ignores = makeIgnores(`# comment
node_modules
/dist/
**/*.log
docs/*/draft?.md
[Bb]in
\\*star
*.md
!README.md
cache/**/old
keep
!keep/this
`)
    const yes = [
      "node_modules/a/b",
      "dist",
      "dist/a",
      "x.log",
      "a/b/x.log",
      "docs/a/draft1.md",
      "bin",
      "Bin/x"
    ]
    const more = ["*star", "a.md", "cache/old", "cache/a/b/old/c", "keep/that"]
    for (const path of [...yes, ...more]) assert.isTrue(ignores(path), path)
    const no = [
      "a/node_modules/b",
      "a/dist",
      "docs/draft1.md",
      "docs/a/draft12.md",
      "cin",
      "xstar",
      "README.md"
    ]
    for (const path of [...no, "a/b.md", "# comment", "keep/this/x"]) assert.isFalse(ignores(path), path)
  })

  it("are no more than can be compared with each of many files", async () => {
    const many = `${"x".repeat(longestPatterns)}\n`
    assert.deepStrictEqual([areFew(`#${many}\n${many}`), areFew(`${many}x`)], [true, false])
    const source = path.join(place, "few")
    fs.writeFileSync(source, await tar(file("x")))
    const copying = { target: "/", isFolder: true, uid: 7, gid: 8 }
    const copy = (sources: ReadonlyArray<string>, ignored: string) =>
      copyArchive(
        source,
        `${source}-copy`,
        (name) => name,
        { ...copying, sources, ignored },
        new AbortController().signal
      ).catch(String)
    assert.strictEqual(await copy(["x"], many), 1)
    assert.match(String(await copy(["x"], `${many}x`)), /more patterns/)
    assert.match(String(await copy(["x", many], "")), /more patterns/)
  })
})
