import { createHmac } from "node:crypto"
import { assert, it } from "@effect/vitest"
import * as Redacted from "effect/Redacted"
import { eventOf, isProven } from "#src/git/forge-events.ts"

const secret = Redacted.make("It's a Secret to Everybody")

it("a body is proven by an HMAC of it, or by GitLab's token", () => {
  // The example of GitHub's documentation (Validating webhook deliveries).
  const body = Buffer.from("Hello, World!")
  const digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
  const github = (value: string) => isProven("github_app", secret, { "x-hub-signature-256": value }, body)
  assert.isTrue(github(`sha256=${digest}`))
  for (const wrong of [
    "",
    "sha256=",
    digest,
    `sha1=${digest}`,
    `sha256=${digest.slice(1)}`,
    `sha256=${"0".repeat(64)}`
  ])
    assert.isFalse(github(wrong), wrong)
  assert.isTrue(isProven("gitea", secret, { "x-gitea-signature": digest }, body))
  assert.isFalse(isProven("gitea", secret, {}, body))
  assert.isFalse(isProven("gitea", secret, { "x-gitea-signature": digest }, Buffer.from("Hello, World")))
  assert.isTrue(isProven("gitlab", secret, { "x-gitlab-token": Redacted.value(secret) }, body))
  for (const wrong of ["", "It's a Secret to Everybod", createHmac("sha256", "x").digest("hex")])
    assert.isFalse(isProven("gitlab", secret, { "x-gitlab-token": wrong }, body))
})

it("pushes and pull requests are understood of each forge, and nothing else is", () => {
  const push = JSON.stringify({ ref: "refs/heads/feature/x", repository: { full_name: "Acme/Shop" } })
  const common = { repo: "acme/shop", branch: null, pullRequest: null, reopened: false }
  assert.deepStrictEqual(
    eventOf("github_token", { "x-github-event": "push", "x-github-delivery": "d-1" }, push),
    { ...common, deliveryId: "d-1", event: "push", branch: "feature/x" }
  )
  const tag = JSON.stringify({ ref: "refs/tags/v1", project: { path_with_namespace: "Acme/Shop" } })
  assert.deepStrictEqual(
    eventOf("gitlab", { "x-gitlab-event": "Tag Push Hook", "idempotency-key": "d-2" }, tag),
    { ...common, deliveryId: "d-2", event: "push", branch: "v1" }
  )
  const merge = JSON.stringify({
    object_attributes: { iid: 7 },
    project: { path_with_namespace: "Acme/Shop" }
  })
  assert.deepStrictEqual(
    eventOf("gitlab", { "x-gitlab-event": "Merge Request Hook", "x-gitlab-event-uuid": "d-3" }, merge),
    { ...common, deliveryId: "d-3", event: "pull_request", pullRequest: 7 }
  )
  const again = JSON.stringify({
    object_attributes: { iid: 7, action: "reopen" },
    project: { path_with_namespace: "Acme/Shop" }
  })
  assert.isTrue(eventOf("gitlab", { "x-gitlab-event": "Merge Request Hook" }, again).reopened)
  const pull = JSON.stringify({ pull_request: { number: 8 }, repository: { full_name: "Acme/Shop" } })
  assert.deepStrictEqual(
    eventOf("forgejo", { "x-gitea-event": "pull_request_sync", "x-gitea-delivery": "d-4" }, pull),
    { ...common, deliveryId: "d-4", event: "pull_request", pullRequest: 8 }
  )
  for (const [event, body] of [
    ["ping", "{}"],
    ["push", "not json"],
    ["push", "{}"],
    ["pull_request", push],
    ["pull_request", JSON.stringify({ pull_request: { number: 2 ** 40 }, repository: { full_name: "a/b" } })],
    ["constructor", "{}"]
  ] as const) {
    const headers = { "x-github-event": event, "x-github-delivery": "d" }
    assert.strictEqual(eventOf("github_app", headers, body).event, "other", `${event} ${body}`)
  }
  // An id that is none is taken from the body, so that the same one is known again.
  const strange = { "x-github-event": "push", "x-github-delivery": "'; drop table" }
  assert.match(eventOf("github_app", strange, push).deliveryId, /^[0-9a-f]{64}$/)
  assert.strictEqual(
    eventOf("github_app", strange, push).deliveryId,
    eventOf("github_app", {}, push).deliveryId
  )
})
