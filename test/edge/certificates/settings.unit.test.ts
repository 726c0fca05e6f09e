import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { secondsUntil } from "#src/edge/certificates/acme/transport.ts"
import { certificateSettings } from "#src/edge/certificates/settings.ts"

const directory = { SVC_ACME_DIRECTORY: "https://ca.example.net/directory" }
const read = (env: Record<string, string>) =>
  Effect.provideService(
    Effect.suspend(() => certificateSettings),
    ConfigProvider.ConfigProvider,
    ConfigProvider.fromEnv({ env })
  )
const dns = {
  provider: "rfc2136",
  server: "192.0.2.53",
  zone: "apps.example.net",
  keyName: "svc",
  secret: Buffer.from("hush").toString("base64")
}

it.effect("without a directory the internal authority issues everything", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* read({}), { acme: undefined, appsFiles: undefined })
  })
)

it.effect("a whole set is read, its secrets redacted", () =>
  Effect.gen(function* () {
    const { acme } = yield* read({
      ...directory,
      SVC_ACME_EMAIL: "ann@example.com",
      SVC_ACME_EAB: "kid-1:aGVsbG8=",
      SVC_ACME_DNS: JSON.stringify(dns)
    })
    assert.strictEqual(Redacted.value(acme!.binding!.hmacKey), "aGVsbG8")
    assert.strictEqual(Redacted.value(acme!.dns!.secret), dns.secret)
    assert.notInclude(JSON.stringify(acme), dns.secret)
    assert.notInclude(JSON.stringify(acme), "aGVsbG8")
  })
)

it.effect("the key of a zone may stand in a file", () =>
  Effect.gen(function* () {
    const file = path.join(os.tmpdir(), `svc-test-dns-${process.pid}.json`)
    fs.writeFileSync(file, JSON.stringify(dns))
    yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(file)))
    assert.strictEqual((yield* read({ ...directory, SVC_ACME_DNS: file })).acme?.dns?.zone, dns.zone)
  }).pipe(Effect.scoped)
)

for (const [what, env] of Object.entries<Record<string, string>>({
  "a directory over plain http elsewhere": { SVC_ACME_DIRECTORY: "http://ca.example.net/directory" },
  "two addresses": { ...directory, SVC_ACME_EMAIL: "ann@example.com,bob@example.com" },
  "a binding without a key": { ...directory, SVC_ACME_EAB: "kid-1-hush" },
  "a file that is not there": { ...directory, SVC_ACME_CA_FILE: "/nowhere/hush" },
  "a zone with a line break": {
    ...directory,
    SVC_ACME_DNS: JSON.stringify({ ...dns, zone: "a.b\nsend hush" })
  },
  "a key name with a space": { ...directory, SVC_ACME_DNS: JSON.stringify({ ...dns, keyName: "a hush" }) },
  "another provider": { ...directory, SVC_ACME_DNS: JSON.stringify({ ...dns, provider: "hush" }) },
  "one of the operator's files": { SVC_APPS_CERTIFICATE: "/etc/hush.pem" }
})) {
  it.effect(`${what} stops the start, and is not repeated`, () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(read(env))
      assert.include(String(error), Object.keys(env).at(-1)!)
      assert.notInclude(String(error), "hush")
    })
  )
}

it("a time to come again is seconds or a date, within a week", () => {
  const now = Date.parse("2026-01-01T00:00:00Z")
  assert.strictEqual(secondsUntil("120", now), 120)
  assert.strictEqual(secondsUntil("Thu, 01 Jan 2026 00:10:00 GMT", now), 600)
  assert.strictEqual(secondsUntil("Wed, 31 Dec 2025 00:00:00 GMT", now), 0)
  assert.strictEqual(secondsUntil("99999999999", now), 7 * 86_400)
  assert.isUndefined(secondsUntil("soon", now))
  assert.isUndefined(secondsUntil(undefined, now))
})
