import { assert, describe, it } from "@effect/vitest"
import type * as HttpServerResponse from "effect/http/HttpServerResponse"
import { answered } from "#src/agents/pages/answered.ts"
import { type Consent, consent, type Refused } from "#src/agents/pages/consent.ts"
import { destinationOf } from "#src/agents/pages/destination.ts"

const asked = (over: Partial<Consent> = {}): Consent => ({
  id: "0198c5a0-0000-7000-8000-000000000001",
  client: { id: "svcd.x.y", name: "Some Agent", firstParty: false },
  redirectUri: "http://127.0.0.1:51123/callback",
  role: "admin",
  operations: [
    { id: "caches.list", summary: "List caches", risk: "read" },
    { id: "caches.create", summary: "Create a cache", risk: "write" },
    { id: "resources.abandon", summary: "Forget a resource", risk: "dangerous" },
    { id: "backups.restore", summary: "Put a database back", risk: "dangerous" },
    { id: "env.delete", summary: "Remove a variable", risk: "destructive" }
  ],
  person: { userId: "0198c5a0-0000-7000-8000-000000000002", email: "ann@example.com" },
  organizations: [
    { id: "0198c5a0-0000-7000-8000-000000000003", slug: "acme", name: "Acme" },
    { id: "0198c5a0-0000-7000-8000-000000000004", slug: "main", name: "Main" }
  ],
  ...over
})

const textOf = ({ body }: HttpServerResponse.HttpServerResponse): string =>
  body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : assert.fail(body._tag)
const shown = (over: Partial<Consent> = {}, refused?: Refused) => textOf(consent(asked(over), refused))
const inputs = (text: string, type: string): ReadonlyArray<string> =>
  text.match(new RegExp(`<input type="${type}"[^>]*>`, "g")) ?? []

describe("the page that asks for consent", () => {
  it("vouches for no program: its name is what it calls itself, also where the name is ours", () => {
    for (const name of ["Some Agent", "svc", "svc-cli", "svc command line"]) {
      const text = shown({ client: { id: "svcd.x.y", name, firstParty: false } })
      assert.include(text, "nobody has checked it")
      assert.include(text, "calls itself")
    }
    assert.notInclude(shown(), "describes itself")
    const described = { id: "https://agents.example/client.json", name: "svc", firstParty: false }
    assert.include(shown({ client: described }), "describes itself at <strong>agents.example</strong>")
    const own = shown({ client: { id: "svcd.x.y", name: "svc command line", firstParty: true } })
    assert.include(own, "calls itself <strong>svc command line</strong>")
    assert.include(own, "Any program on your computer can")
    // A link that somebody sent may ask for the address of the callback, which holds the code.
    assert.include(own, "send it to nobody")
    assert.notInclude(shown({ redirectUri: "https://agents.example/back" }), "send it to nobody")
  })

  it("shows a name as text", () => {
    const name = `</bdi><form action="https://evil.example"><b>svc`
    for (const firstParty of [true, false]) {
      const marked = shown({ client: { id: "svcd.x.y", name, firstParty } })
      assert.notInclude(marked, `action="https://evil.example"`)
      assert.include(marked, "&lt;/bdi&gt;&lt;form action=&quot;https://evil.example&quot;&gt;&lt;b&gt;svc")
    }
  })

  it("says who is signed in, where the answer goes, and as what the program would act", () => {
    const text = shown()
    assert.include(text, "<strong>ann@example.com</strong>")
    assert.include(text, "<strong>a program on this computer (127.0.0.1:51123)</strong>")
    assert.include(text, "as an admin?")
    assert.include(shown({ role: "member" }), "as a member?")
    assert.include(shown({ redirectUri: "https://agents.example/back" }), "<strong>agents.example</strong>")
    assert.include(
      shown({ redirectUri: "cursor://anysphere.cursor-mcp/oauth/callback" }),
      "opens cursor: addresses"
    )
  })

  it("says where the answer goes, and goes there as it is written", () => {
    for (const [url, words] of Object.entries({
      "http://127.0.0.1:51123/callback?x=1&code=2": "a program on this computer (127.0.0.1:51123)",
      "http://[::1]:51123/callback?code=2": "a program on this computer ([::1]:51123)",
      "https://agents.example:8443/back?url='x';y&code=2": "agents.example:8443",
      "https://127.0.0.1/back": "127.0.0.1",
      "cursor://anysphere.cursor-mcp/oauth/callback?code=2":
        "the program on this device that opens cursor: addresses"
    })) {
      assert.strictEqual(destinationOf(url), words)
      const escaped = url.replaceAll("&", "&amp;").replaceAll("'", "&#39;")
      assert.include(textOf(answered(url)), `content="0;url=${escaped}">`)
      assert.include(textOf(answered(url)), `<a href="${escaped}"`)
    }
  })

  it("chooses no organization, not even the only one, and offers no approval where there is none", () => {
    for (const organizations of [asked().organizations, asked().organizations.slice(0, 1)]) {
      const choices = inputs(shown({ organizations }), "radio")
      assert.strictEqual(choices.length, organizations.length)
      for (const one of choices) assert.notInclude(one, " checked")
    }
    const none = shown({ organizations: [] })
    assert.notInclude(none, 'value="approve"')
    assert.include(none, 'value="deny"')
    assert.include(none, "an admin of no organization")
  })

  it("says every operation in words, the riskiest first, and ticks no dangerous one", () => {
    const text = shown()
    const order = [
      "Forget a resource",
      "Put a database back",
      "Remove a variable",
      "Create a cache",
      "List caches"
    ]
    const places = order.map((words) => text.indexOf(words))
    assert.notInclude(places, -1)
    assert.deepStrictEqual(
      places.toSorted((one, other) => one - other),
      places
    )
    for (const { id } of asked().operations) assert.include(text, `<code>${id}</code>`)
    const boxes = inputs(text, "checkbox")
    assert.strictEqual(boxes.length, 2)
    for (const box of boxes) assert.notInclude(box, " checked")
  })

  it("keeps what was chosen when it has to be shown again", () => {
    const again = shown(
      {},
      {
        status: 422,
        problem: "Choose an organization.",
        organization: asked().organizations[1]?.id ?? "",
        ticked: new Set(["backups.restore"])
      }
    )
    assert.include(again, `<div class="problem" role="alert" id="problem"><p>Choose an organization.</p>`)
    const checked = (type: string) => inputs(again, type).filter((one) => one.includes(" checked"))
    assert.strictEqual(checked("radio").length, 1)
    assert.include(checked("radio")[0] ?? "", "000000000004")
    assert.strictEqual(checked("checkbox").length, 1)
    assert.include(checked("checkbox")[0] ?? "", "backups.restore")
  })

  it("gives the Enter key a button that decides nothing", () => {
    const form = shown().split('action="/agent/authorize"')[1] ?? ""
    assert.include(/<button[^>]*>/.exec(form)?.[0] ?? "", 'name="decision" value=""')
  })
})
