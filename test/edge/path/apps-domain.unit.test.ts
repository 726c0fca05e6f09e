import { expect, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { AppConfig } from "#src/config.ts"
import { appsDomainFault } from "#src/edge/apps-domain.ts"
import { settings } from "#src/edge/settings.ts"

it("apps are below a domain that the console is neither at, nor below, nor above", () => {
  for (const [apps, console] of [
    ["apps.localhost", "http://127.0.0.1:8787"],
    ["apps.localhost", "http://localhost:8787"],
    ["example-apps.net", "https://console.example.com"]
  ] as const)
    expect(appsDomainFault(apps, console), apps).toBeUndefined()
  for (const [apps, console] of [
    ["example.com", "https://console.example.com"],
    ["apps.example.com", "https://example.com"],
    ["example.com", "https://example.com:8443"]
  ] as const)
    expect(appsDomainFault(apps, console), apps).toMatch(/cookies/)
  for (const apps of ["Apps.example.net", "apps", "*.example.net", "apps.example.net.", "a b.net", "1.2.3.4"])
    expect(appsDomainFault(apps, "https://console.example.com"), apps).toMatch(/must be a domain/)
})

it.effect("the setting is brought into the form that names are compared in, or stops the start", () =>
  Effect.gen(function* () {
    const of = (value: string) =>
      Effect.result(Effect.provide(settings, AppConfig.layerFrom({ SVC_APPS_DOMAIN: value })))
    const good = yield* of("Apps.Example.NET.")
    expect(good._tag === "Success" && good.success.appsDomain).toBe("apps.example.net")
    for (const bad of ["apps", "*.example.net", "a b.net"]) expect((yield* of(bad))._tag, bad).toBe("Failure")
  })
)
