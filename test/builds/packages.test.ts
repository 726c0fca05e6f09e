/** Builds that fetch packages from their registry: package managers by their lock files, and frameworks. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { answerOf, makeShop, over } from "#test/apps/world.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { file } from "./archives.ts"
import { buildPlane, deploySource, logOf, nothingIsLeft } from "./world.ts"

const integrity =
  "sha512-41Cifkg6e8TylSpdtTpeLVMqvSBEVzTttHvERD741+pnZ8ANv0004MRL43QKPDlK9cGvNp6NZWZUBlbGXYxxng=="
const locks = {
  npm: {
    "package-lock.json": JSON.stringify({
      name: "app",
      lockfileVersion: 3,
      packages: {
        "": { name: "app", dependencies: { "is-number": "7.0.0" } },
        "node_modules/is-number": {
          version: "7.0.0",
          resolved: "https://registry.npmjs.org/is-number/-/is-number-7.0.0.tgz",
          integrity
        }
      }
    })
  },
  pnpm: {
    "pnpm-lock.yaml": `lockfileVersion: '9.0'
settings: { autoInstallPeers: true, excludeLinksFromLockfile: false }
importers:
  .:
    dependencies:
      is-number: { specifier: 7.0.0, version: 7.0.0 }
packages:
  is-number@7.0.0:
    resolution: { integrity: ${integrity} }
    engines: { node: '>=0.12.0' }
snapshots:
  is-number@7.0.0: {}
`
  },
  yarn: {
    "yarn.lock": `# yarn lockfile v1
is-number@7.0.0:
  version "7.0.0"
  resolved "https://registry.yarnpkg.com/is-number/-/is-number-7.0.0.tgz#7535345b896734d5f80c4d06c50955527a14f12b"
  integrity ${integrity}
`
  },
  berry: {
    "yarn.lock": `__metadata:
  version: 8
  cacheKey: 10c0

"app@workspace:.":
  version: 0.0.0-use.local
  resolution: "app@workspace:."
  dependencies:
    is-number: "npm:7.0.0"
  languageName: unknown
  linkType: soft

"is-number@npm:7.0.0":
  version: 7.0.0
  resolution: "is-number@npm:7.0.0"
  checksum: 10c0/b4686d0d3053146095ccd45346461bc8e53b80aeb7671cc52a4de02dbbf7dc0d1d2a986e2fe4ae206984b4d34ef37e8b795ebc4f4295c978373e6575e295d811
  languageName: node
  linkType: hard
`
  }
}

const numberServer = (packageManager?: string) => ({
  "package.json": JSON.stringify({
    name: "app",
    private: true,
    dependencies: { "is-number": "7.0.0" },
    scripts: { start: "node s.js" },
    ...(packageManager === undefined ? {} : { packageManager })
  }),
  "s.js": `const word = String(require("is-number")("12"))
    require("http").createServer((_, answer) => answer.end(word)).listen(process.env.PORT)`
})

/** `answers`: what the page of it holds. */
interface Sample {
  readonly files: Readonly<Record<string, string>>
  readonly answers: RegExp
}

const project = (scripts: object, dependencies: object, more: object = {}) =>
  JSON.stringify({ name: "app", version: "1.0.0", private: true, scripts, dependencies, ...more })

const frameworks: Readonly<Record<string, Sample>> = {
  vite: {
    files: {
      "package.json": project({ build: "vite build" }, {}, { devDependencies: { vite: "^7" } }),
      "index.html": `<title>vite</title><script type="module" src="/main.js"></script>`,
      "main.js": `document.body.append("x")`
    },
    answers: /<title>vite<\/title>[\s\S]*\/assets\//
  },
  astro: {
    files: {
      "package.json": project({ build: "astro build" }, { astro: "^5" }),
      "src/pages/index.astro": "---\nconst word = 'as' + 'tro'\n---\n<p>{word}</p>"
    },
    answers: /<p>astro<\/p>/
  },
  eleventy: {
    files: {
      "package.json": project({ build: "eleventy" }, { "@11ty/eleventy": "^3" }),
      "index.md": "# eleventy"
    },
    answers: /<h1>eleventy<\/h1>/
  },
  vitepress: {
    files: {
      "package.json": project({ build: "vitepress build" }, {}, { devDependencies: { vitepress: "^1" } }),
      "index.md": "# from vitepress"
    },
    answers: /from vitepress/
  },
  next: {
    files: {
      "package.json": project({ build: "next build" }, { next: "^16", react: "^19", "react-dom": "^19" }),
      "pages/index.js": "export default function Page() { return <p>next</p> }"
    },
    answers: /<p>next<\/p>/
  },
  hono: {
    files: {
      "package.json": project({ start: "node server.mjs" }, { hono: "^4", "@hono/node-server": "^1" }),
      "server.mjs": `import { serve } from "@hono/node-server"
import { Hono } from "hono"
const app = new Hono()
app.get("/", (c) => c.text("hono"))
serve({ fetch: app.fetch, port: Number(process.env.PORT) })`
    },
    answers: /hono/
  },
  express: {
    files: {
      "package.json": project({ start: "node server.js" }, { express: "^5" }),
      "server.js": `require("express")().get("/", (_, answer) => answer.send("express")).listen(process.env.PORT)`
    },
    answers: /express/
  }
}

const patience = 1_200_000

const build = Effect.fnUntraced(function* (path: string, files: Readonly<Record<string, string>>) {
  const id = yield* deploySource(path, ...Object.entries(files).map(([name, content]) => file(name, content)))
  const done = yield* over(path, id)
  const log = yield* logOf(path, id)
  assert.strictEqual(done.state, "ready", `${done.error}\n${log.slice(-3_000)}`)
  return log
})

layer(buildPlane(), { excludeTestServices: true, timeout: "5 minutes" })("packages", (it) => {
  campaign(
    it.effect,
    "package-managers",
    "packages are installed by the lock file of each package manager, and fetched once",
    { rounds: 0, roundMs: patience },
    ({ seed }) =>
      Effect.gen(function* () {
        const all = { npm: undefined, pnpm: undefined, yarn: undefined, berry: "yarn@4.9.2" } as const
        for (const name of ["npm", "pnpm", "yarn", "berry"] as const) {
          const { path, host } = yield* makeShop(`${name}-${seed}`)
          const files = { ...numberServer(all[name]), ...locks[name] }
          const first = yield* build(path, files)
          assert.strictEqual(yield* answerOf(host), "200 true", name)
          assert.notInclude(first, "has fetched")
          const second = yield* build(path, { ...files, "other.txt": "1" })
          assert.include(second, "What an earlier build has fetched is used")
          yield* nothingIsLeft
        }
      })
  )

  campaign(
    it.effect,
    "frameworks",
    "frameworks are built and answer without any instructions",
    { rounds: 0, roundMs: patience },
    ({ seed }) =>
      Effect.gen(function* () {
        for (const [name, { files, answers }] of Object.entries(frameworks)) {
          const { path, host } = yield* makeShop(`${name}-${seed}`)
          yield* build(path, files)
          assert.match(yield* answerOf(host), answers, name)
        }
      })
  )
})
