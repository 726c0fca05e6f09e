/**
 * How object storage of users is reached: HTTPS alone, to addresses that were judged, with certificates that the
 * machine or the platform's own authority vouches for.
 *
 * Authorities that are trusted: those that come with Node, those of the system, those in the file that
 * `NODE_EXTRA_CA_CERTS` names, and the platform's own.
 */
import { createHash } from "node:crypto"
import type { LookupAddress } from "node:dns"
import * as https from "node:https"
import * as net from "node:net"
import { Readable } from "node:stream"
import * as tls from "node:tls"
import type { S3Client } from "@aws-sdk/client-s3"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { rangesOf } from "#src/address-ranges.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { judgedAddresses } from "#src/outbound/lookup.ts"
import { PlaceError } from "../repository/Place.ts"
import { addressFault } from "./faults.ts"

export interface DestinationConfig {
  readonly endpoint: string
  readonly bucket: string
  /** Without a slash at either end. */
  readonly prefix: string
  readonly region: string | null
  readonly accessKeyId: string
  readonly secretAccessKey: Redacted.Redacted
  readonly sessionToken?: Redacted.Redacted | undefined
}

export interface ConnectionOptions {
  /** Tries of one request, the first among them. */
  readonly attempts?: number
  /** Silence after which a try is given up. */
  readonly idleMs?: number
}

/** Where somebody says nothing: most servers that are not Amazon's call themselves so, or take any name. */
const usualRegion = "us-east-1"
const connectMs = 10_000

const loadSdk = () => import("@aws-sdk/client-s3")
export type Sdk = Awaited<ReturnType<typeof loadSdk>>

export interface Opened {
  readonly client: S3Client
  readonly sdk: Sdk
}

export class DestinationConnection extends Context.Service<
  DestinationConnection,
  {
    /** A client for one configuration. It holds nothing that would have to be closed. */
    readonly open: (
      config: DestinationConfig,
      options?: ConnectionOptions
    ) => Effect.Effect<Opened, PlaceError>
  }
>()("svc/backups/DestinationConnection") {
  static readonly layer = Layer.effect(
    DestinationConnection,
    Effect.gen(function* () {
      const { outboundAllow } = yield* AppConfig
      const { caPem } = yield* CertificateAuthority
      const allowed = rangesOf(outboundAllow)
      const runFork = Effect.runForkWith(yield* Effect.context<never>())

      // Loaded when the first destination needs it: it takes its time, and most control planes have none.
      const sdk = yield* Effect.cached(Effect.promise(loadSdk))
      const agent = yield* Effect.cached(
        Effect.sync(
          () =>
            new https.Agent({
              keepAlive: true,
              maxSockets: 32,
              maxFreeSockets: 16,
              scheduling: "lifo",
              secureContext: tls.createSecureContext({
                ca: [...tls.getCACertificates("default"), ...tls.getCACertificates("system"), caPem],
                minVersion: "TLSv1.2"
              }),
              // Every new connection asks here, and gets none but addresses that were judged.
              lookup: (hostname, options, answer) => {
                runFork(
                  Effect.match(judgedAddresses(hostname.replace(/\.$/, ""), allowed), {
                    onSuccess: (addresses) => {
                      const found = addresses.map(
                        (address): LookupAddress => ({ address, family: net.isIP(address) })
                      )
                      const [first] = found
                      if (options.all === true) answer(null, found)
                      else answer(null, first?.address ?? "", first?.family)
                    },
                    onFailure: (fault) => answer(addressFault(fault), "")
                  })
                )
              }
            })
        )
      )
      let made: https.Agent | undefined
      yield* Effect.addFinalizer(() => Effect.sync(() => made?.destroy()))

      return DestinationConnection.of({
        open: Effect.fn("DestinationConnection.open")(function* (config, options = {}) {
          const { hostname } = new URL(config.endpoint)
          const host = hostname.replaceAll(/^\[|\]$/g, "")
          // Nobody looks up what is an address already.
          if (net.isIP(host) !== 0) yield* Effect.mapError(judgedAddresses(host, allowed), addressFault)
          const httpsAgent = yield* agent
          made = httpsAgent
          const loaded = yield* sdk
          const { sessionToken } = config
          // Everything that would else be read from files and variables of this machine is said.
          const client = new loaded.S3Client({
            endpoint: config.endpoint,
            region: config.region ?? usualRegion,
            forcePathStyle: true,
            credentials: {
              accessKeyId: config.accessKeyId,
              secretAccessKey: Redacted.value(config.secretAccessKey),
              ...(sessionToken === undefined ? {} : { sessionToken: Redacted.value(sessionToken) })
            },
            maxAttempts: options.attempts ?? 4,
            retryMode: "standard",
            // Checksums that only Amazon's servers know; the contents carry their own, and MD5 is known everywhere.
            requestChecksumCalculation: "WHEN_REQUIRED",
            responseChecksumValidation: "WHEN_REQUIRED",
            followRegionRedirects: false,
            useDualstackEndpoint: false,
            useFipsEndpoint: false,
            useAccelerateEndpoint: false,
            useArnRegion: false,
            disableMultiregionAccessPoints: true,
            disableS3ExpressSessionAuth: true,
            customUserAgent: "svc",
            userAgentAppId: "svc",
            // Its log shows what is sent.
            logger: silent,
            requestHandler: {
              httpsAgent,
              connectionTimeout: connectMs,
              socketTimeout: options.idleMs ?? 60_000
            }
          })
          client.middlewareStack.add(
            (next) => (args) => {
              const { request } = args
              if (isUpload(request)) {
                request.headers["content-md5"] = createHash("md5").update(request.body).digest("base64")
              }
              return next(args)
            },
            { step: "build", name: "contentMd5" }
          )
          client.middlewareStack.add(
            (next, { commandName }) =>
              async (args) => {
                const came = await next(args)
                const { response } = came
                // Contents go to whoever asked for them, piece by piece; the client keeps the whole of all else.
                if (
                  isAnswer(response) &&
                  !(commandName === "GetObjectCommand" && response.statusCode < 300)
                ) {
                  response.body = Readable.from([await whole(response.body)])
                }
                return came
              },
            { step: "deserialize", priority: "low", name: "boundedAnswers" }
          )
          return { client, sdk: loaded }
        })
      })
    })
  )
}

/** Of an answer that is no content: the longest list of a thousand names is shorter. */
const mostOfAnswer = 2 << 20

const isAnswer = (response: unknown): response is { readonly statusCode: number; body: Readable } =>
  typeof response === "object" &&
  response !== null &&
  "body" in response &&
  response.body instanceof Readable &&
  "statusCode" in response &&
  typeof response.statusCode === "number"

const whole = async (body: Readable): Promise<Buffer> => {
  const chunks: Array<Uint8Array> = []
  let size = 0
  for await (const chunk of body) {
    if (!(chunk instanceof Uint8Array)) continue
    size += chunk.length
    if (size > mostOfAnswer) {
      body.destroy()
      throw new PlaceError({ reason: "unreachable", message: tooLong })
    }
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
const tooLong = "The endpoint does not answer as object storage does: the answer has no end"

const nothing = () => {}
const silent = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing }

/** A request with a body in memory. */
const isUpload = (
  request: unknown
): request is { readonly headers: Record<string, string>; readonly body: Uint8Array } =>
  typeof request === "object" && request !== null && "body" in request && request.body instanceof Uint8Array
