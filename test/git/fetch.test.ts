import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { GitFetch } from "#src/git/GitFetch.ts"
import { Host } from "#src/infra/host/Host.ts"
import { processesNaming } from "#src/infra/host/processes-naming.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { contentsOf, fetchingLayer } from "./fetching.ts"
import { gitServer } from "./git-server.ts"

const orgId = uuid()
const credential = (token: string) => ({ username: "x-access-token", token: Redacted.make(token) })
const resolve = (url: string, ref: string) =>
  Effect.flatMap(GitFetch, (git) => git.resolve({ orgId, url, ref }))
const fetched = (url: string, commit: string) =>
  Effect.flatMap(GitFetch, (git) => git.fetch({ orgId, url, commit }))
const refusal = (url: string, commit = "a".repeat(40)) =>
  Effect.map(Effect.flip(fetched(url, commit)), ({ code, message }) => ({ code, message }))

layer(fetchingLayer(), { excludeTestServices: true })("a repository", (it) => {
  it.effect("is asked for its branches and tags, a branch before a tag, and for the branch that counts", () =>
    Effect.gen(function* () {
      const server = yield* gitServer
      const repo = yield* server.create("acme/refs")
      const url = server.url("acme/refs", "git.example.test")
      const first = yield* repo.commit({ "a.txt": "1" })
      const second = yield* repo.commit({ "a.txt": "2" }, { branch: "release/v1" })
      yield* repo.git(["tag", "-m", "annotated", "v1", first])
      yield* repo.git(["tag", "release/v1", first])
      yield* repo.git(["update-ref", "refs/pull/7/head", second])
      assert.strictEqual(yield* resolve(url, "main"), first)
      assert.strictEqual(yield* resolve(url, "release/v1"), second)
      // The tag points to a tag object, which points to the commit.
      assert.strictEqual(yield* resolve(url, "v1"), first)
      assert.strictEqual(yield* resolve(url, "refs/pull/7/head"), second)
      assert.strictEqual(yield* resolve(url, first), first)
      const git = yield* GitFetch
      assert.deepStrictEqual(yield* git.head({ orgId, url }), { branch: "main", commit: first })
      assert.strictEqual((yield* Effect.flip(resolve(url, "nothing"))).code, "ref_not_found")
      assert.strictEqual(
        (yield* Effect.flip(resolve(server.url("acme/none"), "main"))).code,
        "repository_not_found"
      )
      for (const ref of ["--upload-pack=touch /tmp/x", "a b", "mai*", "main~1", "a..b", "x.lock", "", "@"])
        assert.strictEqual((yield* Effect.flip(resolve(url, ref))).code, "invalid", ref)
    })
  )

  it.effect(
    "gives the files of a commit as they are, whatever its attributes say, and nothing of its history",
    () =>
      Effect.gen(function* () {
        const server = yield* gitServer
        const repo = yield* server.create("acme/shop")
        yield* repo.commit({ "old.txt": "of before" })
        const commit = yield* repo.commit({
          ".gitattributes":
            "hidden.txt export-ignore\nsubst.txt export-subst\ncrlf.txt text eol=crlf\nutf.txt working-tree-encoding=UTF-16\nid.txt ident\n",
          "hidden.txt": "here",
          "subst.txt": "$Format:%H$",
          "crlf.txt": "a\nb\n",
          "utf.txt": "plain",
          "id.txt": "$Id$",
          "bin/run": { program: "#!/bin/sh\n" },
          link: { link: "bin/run" },
          "deep/.gitattributes": "* export-ignore\n",
          "deep/kept.txt": "kept"
        })
        const url = server.url("acme/shop")
        const { archive } = yield* fetched(url, commit)
        const entries = yield* contentsOf(archive)
        assert.deepStrictEqual(
          ["hidden.txt", "subst.txt", "crlf.txt", "utf.txt", "id.txt", "deep/kept.txt", "old.txt"].map(
            (name) => entries.get(name)
          ),
          [
            "-rw-r--r-- here",
            "-rw-r--r-- $Format:%H$",
            "-rw-r--r-- a\nb",
            "-rw-r--r-- plain",
            "-rw-r--r-- $Id$",
            "-rw-r--r-- kept",
            undefined
          ]
        )
        assert.match(entries.get("bin/run") ?? "", /^-rwxr-xr-x/)
        assert.match(entries.get("link") ?? "", /^l/)
        // The same files are the same archive, also of another commit.
        yield* repo.commit({ "b.txt": "other" })
        const again = yield* repo.commit(Object.fromEntries([["same.txt", "same"]]))
        const twice = yield* repo.commit({ "same.txt": "same" })
        assert.notStrictEqual(again, twice)
        const [one, other] = [yield* fetched(url, again), yield* fetched(url, twice)]
        assert.deepStrictEqual(fs.readFileSync(one.archive), fs.readFileSync(other.archive))
      })
  )

  it.effect("is given the credential, which is in no argument, in no file and in no message", () =>
    Effect.gen(function* () {
      const server = yield* gitServer
      const repo = yield* server.create("acme/closed")
      const commit = yield* repo.commit({ "a.txt": "secret source" })
      server.tokens.set("acme/closed", "canary-token-1")
      const url = server.url("acme/closed")
      const git = yield* GitFetch
      const none = yield* Effect.flip(git.fetch({ orgId, url, commit }))
      const wrong = yield* Effect.flip(
        git.fetch({ orgId, url, commit, credential: credential("canary-token-2") })
      )
      assert.deepStrictEqual([none.code, wrong.code], ["unauthorized", "unauthorized"])
      assert.notInclude(JSON.stringify([none, wrong]), "canary")
      const seen: Array<string> = []
      const encoded = Buffer.from("x-access-token:canary-token-1").toString("base64")
      server.instead = () => {
        for (const pid of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)))
          try {
            seen.push(fs.readFileSync(`/proc/${pid}/cmdline`, "utf8"))
          } catch {}
        return false
      }
      const got = yield* git.fetch({ orgId, url, commit, credential: credential("canary-token-1") })
      assert.isTrue(seen.some((line) => line.includes(url)))
      assert.isFalse(seen.some((line) => line.includes("canary-token-1") || line.includes(encoded)))
      const files = fs.readdirSync(path.dirname(got.archive), { recursive: true, withFileTypes: true })
      for (const entry of files.filter((one) => one.isFile())) {
        const text = fs.readFileSync(path.join(entry.parentPath, entry.name), "latin1")
        assert.isFalse(text.includes("canary") || text.includes(encoded), entry.name)
      }
    })
  )

  it.effect("is fetched over https from an address that was judged, and from nowhere else", () =>
    Effect.gen(function* () {
      const server = yield* gitServer
      const repo = yield* server.create("acme/there")
      const commit = yield* repo.commit({ "a.txt": "1" })
      const marker = path.join((yield* Host).dataDir, "touched")
      for (const url of [
        `ext::sh -c touch% ${marker}`,
        `file://${repo.dir}`,
        repo.dir,
        "--upload-pack=touch",
        "git://127.0.0.1/a.git",
        "ssh://git@127.0.0.1/a.git",
        "git@127.0.0.1:a.git",
        `http://127.0.0.1:${server.port}/acme/there.git`,
        `https://user:pass@127.0.0.1:${server.port}/acme/there.git`,
        `https://127.0.0.1:${server.port}/acme/there.git?x=1`,
        `https://127.0.0.1:${server.port}/a b.git`,
        `https://127.0.0.1:${server.port}/\n.git`,
        `https://127.0.0.1\\@example.com/a.git`,
        `https://127.0.0.1:${server.port}/`
      ])
        assert.strictEqual((yield* refusal(url, commit)).code, "invalid", url)
      for (const host of [
        "169.254.169.254",
        "metadata.example.test",
        "private.example.test",
        "10.0.0.1",
        "[::ffff:10.0.0.1]"
      ])
        assert.strictEqual(
          (yield* refusal(`https://${host}:${server.port}/acme/there.git`, commit)).code,
          "address_refused",
          host
        )
      assert.strictEqual((yield* refusal("https://unknown.example.test/a.git")).code, "unreachable")
      // A certificate for another name.
      assert.strictEqual(
        (yield* refusal(`https://other.localhost:${server.port}/acme/there.git`, commit)).code,
        "unreachable"
      )
      assert.isFalse(fs.existsSync(marker))
      assert.lengthOf(server.requests, 0)
    })
  )

  it.effect("is followed to no other address", () =>
    Effect.gen(function* () {
      const server = yield* gitServer
      const elsewhere = yield* gitServer
      const repo = yield* elsewhere.create("acme/target")
      const commit = yield* repo.commit({ "a.txt": "1" })
      server.instead = (request, response) => {
        response.writeHead(302, { location: `https://127.0.0.1:${elsewhere.port}${request.url}` }).end()
        return true
      }
      const { code, message } = yield* refusal(server.url("acme/target"), commit)
      assert.deepStrictEqual([code, /redirects/.test(message)], ["unsupported", true])
      assert.lengthOf(elsewhere.requests, 0)
    })
  )

  it.effect(
    "brings its submodules, each by the same rules, and the credential only to those of whoever it is of",
    () =>
      Effect.gen(function* () {
        const server = yield* gitServer
        const [top, inner, innermost] = [
          yield* server.create("acme/top"),
          yield* server.create("acme/inner"),
          yield* server.create("other/innermost")
        ]
        const deepest = yield* innermost.commit({ "deep.txt": "deepest" })
        const middle = yield* inner.commit(
          {
            ".gitmodules": `[submodule "x"]\n\tpath = vendor/x\n\turl = ${server.url("other/innermost", "sub.example.test")}\n`,
            "inner.txt": "inner"
          },
          { links: { "vendor/x": deepest } }
        )
        const commit = yield* top.commit(
          { ".gitmodules": '[submodule "in"]\n\tpath = libs/in\n\turl = ../inner.git\n', "top.txt": "top" },
          { links: { "libs/in": middle } }
        )
        server.tokens.set("acme/top", "token").set("acme/inner", "token")
        const git = yield* GitFetch
        const base = server.url("acme/top", "git.example.test").replace(/\/acme\/.*/, "")
        const untrusted = { orgId, url: `${base}/acme/top.git`, commit, credential: credential("token") }
        // Whoever wrote the commit would be shown what is in any repository that the credential opens.
        for (const below of [undefined, `${base}/acm`, `${base}/other`])
          assert.strictEqual(
            (yield* Effect.flip(git.fetch({ ...untrusted, credentialBelow: below }))).code,
            "unauthorized"
          )
        assert.isFalse(
          server.requests.some(({ url, password }) => url.includes("inner") && password !== undefined)
        )
        const { file } = yield* git.files(untrusted)
        assert.deepStrictEqual(yield* file("top.txt", 10), Option.some(Buffer.from("top")))
        const of = { ...untrusted, credentialBelow: `${base}/acme` }
        const entries = yield* contentsOf((yield* git.fetch(of)).archive)
        assert.deepStrictEqual(
          ["top.txt", "libs/in/inner.txt", "libs/in/vendor/x/deep.txt"].map((name) => entries.get(name)),
          ["-rw-r--r-- top", "-rw-r--r-- inner", "-rw-r--r-- deepest"]
        )
        const toOther = server.requests.filter(({ url }) => url.startsWith("/other/"))
        assert.isTrue(toOther.length > 0 && toOther.every(({ password }) => password === undefined))

        const pointing = (name: string, url: string) =>
          Effect.flatMap(server.create(name), (repo) =>
            repo.commit(
              { ".gitmodules": `[submodule "s"]\n\tpath = s\n\turl = ${url}\n` },
              { links: { s: deepest } }
            )
          )
        for (const [i, url] of [
          "ext::sh -c id",
          "file:///etc",
          "git@github.com:acme/x.git",
          "https://169.254.169.254/x.git"
        ].entries()) {
          const { code, message } = yield* refusal(
            server.url(`acme/bad${i}`),
            yield* pointing(`acme/bad${i}`, url)
          )
          assert.strictEqual(code, i === 3 ? "address_refused" : "invalid", message)
        }
        // One that holds itself.
        const circle = yield* server.create("acme/circle")
        const loop = yield* circle.commit(
          { ".gitmodules": '[submodule "s"]\n\tpath = s\n\turl = ./../circle.git\n' },
          { links: { s: deepest } }
        )
        const { code } = yield* refusal(server.url("acme/circle"), loop)
        assert.strictEqual(code, "ref_not_found")
      })
  )

  it.effect("says so when it keeps files in Git LFS", () =>
    Effect.gen(function* () {
      const server = yield* gitServer
      const repo = yield* server.create("acme/lfs")
      const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"ab".repeat(32)}\nsize 12345\n`
      const commit = yield* repo.commit({
        ".gitattributes": "*.bin filter=lfs diff=lfs -text\n",
        "a.bin": pointer
      })
      const { code, message } = yield* refusal(server.url("acme/lfs"), commit)
      assert.deepStrictEqual([code, /Git LFS/.test(message)], ["unsupported", true])
      // Rules for files that it does not have.
      const without = yield* repo.commit({ ".gitattributes": "*.bin filter=lfs\n", "a.txt": "1" })
      assert.isTrue(fs.existsSync((yield* fetched(server.url("acme/lfs"), without)).archive))
    })
  )

  it.effect("leaves nothing behind: no folder, and no process when nobody waits any more", () =>
    Effect.gen(function* () {
      const server = yield* gitServer
      const repo = yield* server.create("acme/slow")
      const commit = yield* repo.commit({ "a.txt": "1" })
      const folder = path.join((yield* Host).dataDir, "git")
      const left = () => fs.readdirSync(folder).filter((name) => name.startsWith("work-"))
      const scope = yield* Scope.make()
      const { archive } = yield* Scope.provide(fetched(server.url("acme/slow"), commit), scope)
      assert.isTrue(fs.existsSync(archive))
      yield* Scope.close(scope, Exit.void)
      assert.isFalse(fs.existsSync(archive))
      server.instead = () => true
      const url = server.url("acme/slow")
      const fiber = yield* Effect.forkChild(Effect.scoped(fetched(url, commit)))
      yield* eventually(
        "git waits for an answer",
        Effect.map(processesNaming(url), (pids) => pids.length > 0 && server.requests.length > 0)
      )
      yield* Fiber.interrupt(fiber)
      yield* eventually(
        "its processes are gone",
        Effect.map(processesNaming(url), (pids) => pids.length === 0)
      )
      assert.deepStrictEqual(left(), [])
    })
  )
})

layer(fetchingLayer({ fileBytes: 300_000, entries: 50, fetchMs: 20_000 }), { excludeTestServices: true })(
  "bounds",
  (it) => {
    it.effect("hold of a pack, of what it unfolds to, of files and of submodules", () =>
      Effect.gen(function* () {
        const server = yield* gitServer
        const sizes = async (length: number) => (await import("node:crypto")).randomBytes(length)
        const pack = yield* server.create("acme/pack")
        const large = yield* pack.commit({ "noise.bin": yield* Effect.promise(() => sizes(2_000_000)) })
        assert.strictEqual((yield* refusal(server.url("acme/pack"), large)).code, "too_large")
        // Files that nobody reads are not brought, by a server that can leave them out.
        const git = yield* GitFetch
        const of = {
          orgId,
          url: server.url("acme/pack"),
          commit: yield* pack.commit({
            "noise.bin": yield* Effect.promise(() => sizes(2_000_000)),
            "deep/kept.txt": "kept",
            link: { link: "deep/kept.txt" }
          })
        }
        assert.strictEqual((yield* Effect.flip(git.files(of))).code, "too_large")
        yield* pack.git(["config", "uploadpack.allowFilter", "true"])
        const { file } = yield* git.files(of)
        assert.strictEqual(Option.getOrThrow(yield* file("deep/kept.txt", 4)).toString(), "kept")
        assert.strictEqual((yield* Effect.flip(file("deep/kept.txt", 3))).code, "too_large")
        assert.strictEqual((yield* Effect.flip(file("noise.bin", 3_000_000))).code, "too_large")
        for (const name of [
          "link",
          "nothing",
          "deep",
          "../etc/passwd",
          "/etc/passwd",
          "deep/../link",
          ":(top)link"
        ])
          assert.isTrue(Option.isNone(yield* file(name, 10)), name)
        // Packs that are small enough each, and not together.
        const parts = yield* server.create("acme/parts")
        const links: Record<string, string> = {}
        let modules = ""
        for (const name of ["one", "two"]) {
          const part = yield* server.create(`acme/${name}`)
          links[name] = yield* part.commit({ "noise.bin": yield* Effect.promise(() => sizes(200_000)) })
          modules += `[submodule "${name}"]\n\tpath = ${name}\n\turl = ../${name}.git\n`
        }
        const whole = yield* parts.commit({ ".gitmodules": modules }, { links })
        assert.strictEqual((yield* refusal(server.url("acme/parts"), whole)).code, "too_large")
        const zeros = yield* server.create("acme/zeros")
        const unfolding = yield* zeros.commit({ "zeros.bin": Buffer.alloc(2_000_000) })
        assert.strictEqual((yield* refusal(server.url("acme/zeros"), unfolding)).code, "too_large")
        const many = yield* server.create("acme/many")
        const crowd = yield* many.commit(
          Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`f${i}`, "x"]))
        )
        assert.strictEqual((yield* refusal(server.url("acme/many"), crowd)).code, "too_large")
        // A few objects that unfold to ten to the tenth files.
        const bomb = yield* server.create("acme/bomb")
        let tree = yield* bomb.git(
          ["mktree"],
          `100644 blob ${yield* bomb.git(["hash-object", "-w", "--stdin"], "x")}\tf0\n`
        )
        for (let depth = 0; depth < 10; depth++)
          tree = yield* bomb.git(
            ["mktree"],
            Array.from({ length: 10 }, (_, i) => `040000 tree ${tree}\td${i}\n`).join("")
          )
        const exploding = yield* bomb.git(["commit-tree", "-m", "bomb", tree])
        yield* bomb.git(["update-ref", "refs/heads/main", exploding])
        assert.strictEqual((yield* refusal(server.url("acme/bomb"), exploding)).code, "too_large")
      })
    )
  }
)

layer(fetchingLayer({ memoryBytes: 64 * 1024 * 1024 }), { excludeTestServices: true })("memory", (it) => {
  campaign(
    it.effect,
    "git-memory",
    "memory of a fetch is bounded: an object that unfolds to more ends git, which goes before all others",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const server = yield* gitServer
        const repo = yield* server.create("acme/swollen")
        const small = yield* repo.commit({ "large.bin": Buffer.alloc(40 * 1024 * 1024) })
        assert.isTrue(fs.existsSync((yield* fetched(server.url("acme/swollen"), small)).archive))
        // What a commit says is held as a whole, and packed it is small.
        const head = `tree ${yield* repo.git(["rev-parse", `${small}^{tree}`])}\nauthor A <a@a> 0 +0000\ncommitter A <a@a> 0 +0000\n\n`
        const swollen = yield* repo.git(
          ["hash-object", "-t", "commit", "-w", "--stdin"],
          `${head}${"x".repeat(100 * 1024 * 1024)}`
        )
        yield* repo.git(["update-ref", "refs/heads/main", swollen])
        const { code, message } = yield* refusal(server.url("acme/swollen"), swollen)
        assert.deepStrictEqual([code, /memory/.test(message)], ["too_large", true], message)

        const scores: Array<string> = []
        server.instead = () => {
          for (const pid of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)))
            try {
              if (fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(server.url("acme/swollen")))
                scores.push(fs.readFileSync(`/proc/${pid}/oom_score_adj`, "utf8").trim())
            } catch {}
          return false
        }
        yield* resolve(server.url("acme/swollen"), "main")
        assert.isTrue(scores.length > 0 && scores.every((score) => score === "1000"), scores.join())
      })
  )
})

layer(fetchingLayer({ atOnce: 2, atOnceOfOne: 1, askMs: 30_000 }), { excludeTestServices: true })(
  "an organization whose repositories do not answer",
  (it) => {
    it.effect("keeps no other from fetching, and none from asking for commits", () =>
      Effect.gen(function* () {
        const [silent, server] = [yield* gitServer, yield* gitServer]
        silent.instead = () => true
        const repo = yield* server.create("acme/shop")
        const commit = yield* repo.commit({ "a.txt": "1" })
        const git = yield* GitFetch
        const stuck = { orgId, url: silent.url("acme/shop"), commit }
        for (let i = 0; i < 4; i++) yield* Effect.forkChild(Effect.scoped(git.fetch(stuck)))
        yield* eventually(
          "the first waits",
          Effect.sync(() => silent.requests.length > 0)
        )
        const url = server.url("acme/shop")
        assert.strictEqual(yield* resolve(url, "main"), commit)
        assert.strictEqual((yield* git.fetch({ orgId: uuid(), url, commit })).commit, commit)
      })
    )
  }
)

layer(fetchingLayer({ askMs: 1_500, fetchMs: 1_500 }), { excludeTestServices: true })(
  "a server that says nothing",
  (it) => {
    it.effect("is waited for a while", () =>
      Effect.gen(function* () {
        const server = yield* gitServer
        server.instead = () => true
        const url = server.url("acme/silent")
        assert.strictEqual((yield* Effect.flip(resolve(url, "main"))).code, "timed_out")
        assert.strictEqual((yield* refusal(url)).code, "timed_out")
      })
    )
  }
)

layer(fetchingLayer({}, []), { excludeTestServices: true })(
  "a machine that allows users nothing of its own",
  (it) => {
    it.effect("does not fetch from itself", () =>
      Effect.gen(function* () {
        const server = yield* gitServer
        for (const host of ["127.0.0.1", "localhost", "git.example.test"]) {
          const { code } = yield* refusal(server.url("acme/x", host))
          assert.strictEqual(code, "address_refused", host)
        }
        assert.lengthOf(server.requests, 0)
      })
    )
  }
)
