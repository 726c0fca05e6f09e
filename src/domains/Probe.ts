/**
 * What visitors of a host name would meet: a TLS handshake with every edge that is at work, at the edge's own address, so
 * that DNS has no part in it. What counts as a good certificate is what browsers and the platform's own clients trust.
 */
import * as tls from "node:tls"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { certificateSettings } from "#src/edge/certificates/settings.ts"
import { type EdgeNode, EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export type Served =
  | { readonly _tag: "Everywhere" }
  /** A sentence for users: what one of the edges answered. */
  | { readonly _tag: "Not"; readonly message: string }
  /** One of the edges did not answer, and all others serve it: what visitors of that one meet is not known. */
  | { readonly _tag: "NoAnswer"; readonly message: string }
  /** No edge is at work, so nobody can tell. */
  | { readonly _tag: "NoEdge" }

/** What is wrong with an edge, and whether it answered at all. */
interface Fault {
  readonly answered: boolean
  readonly message: string
}

/** How long one handshake may take. */
const patience = "3 seconds"
/** Edges that are asked at a time. */
const together = 8

export class Probe extends Context.Service<
  Probe,
  { readonly served: (hostname: string) => Effect.Effect<Served, StoreUnavailable> }
>()("svc/domains/Probe") {
  static readonly layer = Layer.effect(
    Probe,
    Effect.gen(function* () {
      const nodes = yield* EdgeNodes
      const { caPem } = yield* CertificateAuthority
      const { acme } = yield* certificateSettings
      const trusted = (ca: () => ReadonlyArray<string>) => {
        let made: tls.SecureContext | undefined
        return () => (made ??= tls.createSecureContext({ ca: [...ca()] }))
      }
      // To read what the system trusts takes a third of a second: it is done where it is needed, once.
      const trust = [
        trusted(() => (acme?.extraCa === undefined ? [caPem] : [caPem, acme.extraCa])),
        trusted(() => [...tls.rootCertificates, ...tls.getCACertificates("system")])
      ]
      const look = Effect.fnUntraced(function* (node: EdgeNode, hostname: string) {
        let fault: Fault | undefined
        for (const secureContext of trust) {
          fault = yield* handshake(node, hostname, secureContext())
          if (fault !== untrusted) return fault
        }
        return fault
      })
      return Probe.of({
        served: Effect.fn("Probe.served")(function* (hostname) {
          const live = yield* nodes.live
          if (live.length === 0) return { _tag: "NoEdge" }
          const faults = yield* Effect.forEach(live, (node) => look(node, hostname), {
            concurrency: together
          })
          const wrong = faults.find((one) => one?.answered === true)
          if (wrong !== undefined)
            return {
              _tag: "Not",
              message: `An edge does not serve ${hostname} as it should: ${wrong.message}`
            }
          const silent = faults.find((one) => one !== undefined)
          return silent === undefined
            ? { _tag: "Everywhere" }
            : {
                _tag: "NoAnswer",
                message: `Whether an edge serves ${hostname} is not known: ${silent.message}`
              }
        })
      })
    })
  )
}

/** Undefined: a chain that is trusted and names the host. The connection is closed when this ends, however it does. */
const handshake = (
  { address, httpsPort }: EdgeNode,
  hostname: string,
  secureContext: tls.SecureContext
): Effect.Effect<Fault | undefined> =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      const socket = tls.connect({ host: address, port: httpsPort, servername: hostname, secureContext })
      // What goes wrong after the answer is of no interest, and must find somebody who listens.
      socket.on("error", () => {})
      return socket
    }),
    (socket) =>
      Effect.callback<Fault | undefined>((resume) => {
        socket.once("secureConnect", () => resume(Effect.succeed(undefined)))
        socket.once("error", (error) => resume(Effect.succeed(faultOf(error))))
        socket.once("close", () => resume(Effect.succeed(closed)))
      }),
    (socket) => Effect.sync(() => socket.destroy())
  ).pipe(
    Effect.timeoutOrElse({
      duration: patience,
      orElse: () => Effect.succeed({ answered: false, message: "it did not answer in time" })
    })
  )

const untrusted: Fault = { answered: true, message: "its certificate is signed by nobody who is trusted" }
const closed: Fault = { answered: false, message: "it closed the connection" }
const unreachable: Fault = { answered: false, message: "it cannot be reached" }
const isFailure = Schema.is(Schema.Struct({ code: Schema.String }))
const faultOf = (error: Error): Fault => {
  const code = isFailure(error) ? error.code : ""
  return (
    faults[code] ?? {
      answered: true,
      message: /alert/i.test(error.message)
        ? "it has no certificate for it"
        : `the handshake failed (${code || error.message.slice(0, 100)})`
    }
  )
}
const faults: Readonly<Record<string, Fault>> = {
  ECONNREFUSED: unreachable,
  EHOSTUNREACH: unreachable,
  ENETUNREACH: unreachable,
  ETIMEDOUT: unreachable,
  ECONNRESET: closed,
  CERT_HAS_EXPIRED: { answered: true, message: "its certificate has expired" },
  CERT_NOT_YET_VALID: { answered: true, message: "its certificate does not hold yet" },
  ERR_TLS_CERT_ALTNAME_INVALID: { answered: true, message: "its certificate is another name's" },
  SELF_SIGNED_CERT_IN_CHAIN: untrusted,
  DEPTH_ZERO_SELF_SIGNED_CERT: untrusted,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: untrusted
}
