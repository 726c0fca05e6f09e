/** The files from which HAProxy starts, when somebody takes them away at a bad moment. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { makeNodeFiles } from "#src/edge/agent/files.ts"
import { makeFolder } from "#src/edge/agent/folder.ts"
import { Routes } from "#src/edge/agent/Routes.ts"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host } from "#src/infra/host/Host.ts"
import { testFolder } from "#test/setup/folder.ts"

const name = "shop.example"
const pem = Redacted.make("a certificate and its key")
const certificates = Layer.mock(Certificates)({
  served: Effect.succeed(new Map([[name, "fingerprint"]])),
  files: (names) => Effect.succeed(names.map((one) => ({ name: one, fingerprint: "fingerprint", pem })))
})
const authority = Layer.mock(CertificateAuthority)({
  caPem: "",
  issue: () => Effect.succeed({ certificatePem: "", privateKeyPem: pem, expiresAt: new Date(0) }),
  inspect: () => Option.none()
})

it.live("a certificate whose file went just after the folder was seen to be whole is written again", () =>
  Effect.gen(function* () {
    const dataDir = fs.mkdtempSync(path.join(testFolder(), "svc-test-"))
    yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(dataDir, { recursive: true, force: true })))
    yield* Effect.gen(function* () {
      const folder = yield* makeFolder
      let reads = 0
      let meanwhile = Effect.void
      const files = yield* makeNodeFiles(
        {
          folder: { ...folder, isWhole: Effect.tap(folder.isWhole, () => meanwhile) },
          config: "global"
        },
        Effect.sync(() => void reads++)
      )
      yield* files.writeCertificates("all")
      yield* files.write
      yield* folder.writeConfig("global")
      yield* files.keep
      assert.strictEqual(reads, 0)

      files.becomeStale()
      meanwhile = Effect.sync(() => fs.rmSync(folder.place.dir, { recursive: true }))
      yield* files.keep
      meanwhile = Effect.void
      assert.strictEqual(reads, 1, "what is stored is read again")
      yield* files.writeCertificates("all")
      yield* files.keep
      const file = (of: string) => fs.readFileSync(path.join(folder.place.dir, of), "utf8")
      assert.strictEqual(file(`certificates/${name}.pem`), Redacted.value(pem))
      assert.include(file("certificates.list"), name)
    }).pipe(
      Effect.provide(
        Layer.mergeAll(Routes.layer, certificates, authority, Host.layer).pipe(
          Layer.provide(AppConfig.layerWith({ dataDir }))
        )
      )
    )
  }).pipe(Effect.scoped)
)
