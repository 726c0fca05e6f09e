import { expect, it } from "@effect/vitest"
import { appsDomainFault } from "#src/edge/apps-domain.ts"

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
