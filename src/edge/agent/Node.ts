/**
 * A node of the edge: HAProxy on this machine, kept running and kept to what the store says.
 *
 * It hears of changes, reads the changed rows again and puts them into the running HAProxy; at the start, after a lost
 * connection, after HAProxy was started, and every few minutes it compares everything. While the store is away HAProxy
 * goes on with what it has, and is started again from files if it ends; before the store was read once, only as the
 * process starts (`start-from-files.ts`). Two processes of one data folder take turns: the port of the agent is held by the
 * one whose turn it is (`listener.ts`).
 */
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import * as Semaphore from "effect/Semaphore"
import * as Stream from "effect/Stream"
import { answered } from "#src/engine/answered.ts"
import { supervise } from "#src/engine/supervise.ts"
import { readInfo } from "#src/infra/haproxy/control.ts"
import { failed, HaproxyError } from "#src/infra/haproxy/errors.ts"
import { makeHaproxy } from "#src/infra/haproxy/process.ts"
import { Host } from "#src/infra/host/Host.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db } from "#src/store/Db.ts"
import { EdgeNodes, edgeChannel, heartbeat } from "../EdgeNodes.ts"
import { settings } from "../settings.ts"
import { makeApply } from "./apply.ts"
import { type Changes, makeChanges } from "./changes.ts"
import { makeNodeFiles } from "./files.ts"
import type { EdgeFolder } from "./folder.ts"
import { reportLoad } from "./load.ts"
import { portsTaken } from "./ports.ts"
import { Routes } from "./Routes.ts"
import { readHosts, readSites } from "./rows.ts"

/** How soon it is seen that HAProxy has ended. */
const lookMs = 500
/** Between tries to start it: at first, and at most. */
const startAgainMs = { first: 500, most: 30_000 }
const compareEvery = "5 minutes"
/** A look at the store that takes longer is begun anew. */
const readMs = 20_000
/** Whoever asks waits for five seconds. */
const answerMs = 3_000

export const runNode = Effect.fnUntraced(function* (node: {
  readonly id: string
  readonly folder: EdgeFolder
  readonly config: string
}) {
  const { folder, config } = node
  const { place } = folder
  const host = yield* Host
  const routes = yield* Routes
  const nodes = yield* EdgeNodes
  const { engine: sql, notifications } = yield* Db
  const { host: address, httpsPort, httpPort } = yield* settings
  const haproxy = makeHaproxy(host)
  const apply = makeApply(folder)
  const changes = makeChanges()
  const woken = yield* Queue.sliding<void>(1)
  const proxy = Semaphore.makeUnsafe(1)

  /** Why nothing is served. */
  let fault: string | undefined = "HAProxy is being started"
  /** The worker that has all changes; another one has what is in the files. */
  let worker: number | undefined
  let loaded = false

  const wake = Effect.sync(() => Queue.offerUnsafe(woken, undefined))
  const onHost = Effect.mapError(failed)

  const files = yield* makeNodeFiles(
    node,
    Effect.andThen(
      Effect.sync(() => changes.everything()),
      wake
    )
  )

  /** The new configuration is checked before it is taken. */
  const writeAll = Effect.gen(function* () {
    yield* files.write
    yield* haproxy.check(place, config)
    yield* onHost(folder.writeConfig(config))
  })

  const start = Effect.gen(function* () {
    yield* haproxy.program
    yield* haproxy.stop(place)
    const taken = yield* portsTaken(address, [
      ["SVC_EDGE_HTTPS_PORT", httpsPort],
      ["SVC_EDGE_HTTP_PORT", httpPort]
    ])
    if (taken !== undefined) return yield* new HaproxyError({ reason: "StartFailed", message: taken })
    yield* files.orAsTheyAre(writeAll)
    yield* haproxy.start(place)
    yield* Effect.logDebug("the edge listens", { address, httpsPort, httpPort })
  })

  /** One look after HAProxy: it runs, with this configuration, and its files are there. */
  const keepRunning = Effect.gen(function* () {
    // One that is only slow is not ended for it.
    const ended = yield* Effect.as(readInfo(place.socket), false).pipe(
      Effect.catchIf(
        ({ reason }) => reason === "Closed",
        () => Effect.succeed(true)
      )
    )
    const stored = yield* onHost(folder.config)
    if (ended) {
      worker = undefined
      yield* start
    } else if (stored !== undefined && stored !== config) {
      // Another release's.
      yield* files.later(Effect.andThen(writeAll, haproxy.reload(place)))
    } else yield* files.later(files.keep)
    const { pid } = yield* readInfo(place.socket)
    if (pid !== worker) changes.everything()
    if (pid !== worker || fault !== undefined) yield* wake
    fault = undefined
  }).pipe(proxy.withPermits(1))

  const watch = Effect.gen(function* () {
    let pause: number = startAgainMs.first
    for (;;) {
      if (loaded) {
        const looked = yield* Effect.result(keepRunning)
        if (looked._tag === "Success") pause = startAgainMs.first
        else {
          const { message } = looked.failure
          if (fault !== message) yield* Effect.logWarning(`the edge does not serve: ${message}`)
          fault = message
          yield* beat
          yield* Effect.sleep(pause * (0.8 + 0.4 * Math.random()))
          pause = Math.min(startAgainMs.most, pause * 2)
        }
      }
      yield* Effect.sleep(lookMs)
    }
  })

  const beat = Effect.suspend(() =>
    nodes.beat({ id: node.id, address: reachedAt(address), httpsPort, fault })
  ).pipe(
    answered("say that the edge is at work", 5_000),
    Effect.catch((error) => Effect.logDebug("the edge could not say that it is at work", error))
  )

  const read = Effect.fnUntraced(function* (heard: Changes) {
    if (heard.all) {
      routes.replaceHosts("all", yield* readHosts(sql, "all"))
      routes.replaceSites("all", yield* readSites(sql, "all"))
      yield* files.writeCertificates("all")
      files.becomeStale()
      return
    }
    if (heard.sites.size > 0) {
      routes.replaceSites(heard.sites, yield* readSites(sql, [...heard.sites]))
      files.becomeStale()
    }
    if (heard.hosts.size > 0) {
      routes.replaceHosts(heard.hosts, yield* readHosts(sql, [...heard.hosts]))
      files.becomeStale()
    }
    if (heard.certificates.size > 0) yield* files.writeCertificates(heard.certificates)
  })

  const put = Effect.fnUntraced(function* (heard: Changes) {
    const { pid } = yield* readInfo(place.socket)
    const wanted = files.certificateNames()
    if (heard.all || pid !== worker) {
      yield* apply.look
      // Names are served once their certificate is there.
      yield* Effect.forEach(wanted, apply.putCertificate, { discard: true })
      yield* apply.allMaps({ hosts: routes.hostLines(), sites: routes.siteLines() })
      yield* apply.dropCertificatesBut(wanted)
      worker = pid
    } else {
      const names = [...heard.certificates]
      yield* Effect.forEach(
        names.filter((name) => wanted.has(name)),
        apply.putCertificate,
        { discard: true }
      )
      yield* apply.someMaps({ ...heard, hostLine: routes.hostLine, siteLine: routes.siteLine })
      yield* Effect.forEach(
        names.filter((name) => !wanted.has(name)),
        apply.dropCertificate,
        {
          discard: true
        }
      )
    }
  })

  /** Takes up what was heard. */
  const takeUp = Effect.gen(function* () {
    const heard = changes.take()
    yield* read(heard).pipe(
      answered("tell what the edge serves", readMs),
      Effect.andThen(
        proxy.withPermits(1)(
          // HAProxy must not be left with half of a change and a memory of the whole.
          Effect.uninterruptible(put(heard))
        )
      ),
      Effect.onError(() =>
        Effect.sync(() => {
          worker = undefined
          changes.giveBack(heard)
        })
      )
    )
    routes.announce()
    if (heard.question > 0n)
      yield* nodes.answer(node.id, heard.question).pipe(
        answered("note that the edge has taken up what is stored", answerMs),
        // It is answered later, together with what is heard until then.
        Effect.onError(() => Effect.sync(() => changes.hear(`ask ${heard.question}`)))
      )
  })

  const sync = Effect.gen(function* () {
    // Without HAProxy what is heard is kept; whoever starts it wakes this.
    while (changes.isEmpty() || fault !== undefined) yield* Queue.take(woken)
    yield* takeUp
  })
  const first = read({ ...changes.take(), all: true }).pipe(
    answered("tell what the edge serves", readMs),
    Effect.andThen(
      Effect.sync(() => {
        loaded = true
        routes.becomeLoaded()
      })
    )
  )

  yield* Effect.forkScoped(
    supervise(
      "hear what the edge is to serve",
      Stream.runForEach(notifications(edgeChannel), (payload) => {
        changes.hear(payload)
        return wake
      })
    )
  )
  const label = "bring the edge to what the store says"
  yield* Effect.forkScoped(Effect.andThen(supervise(label, first), Effect.forever(supervise(label, sync))))
  yield* Effect.forkScoped(supervise("keep HAProxy running", watch))
  yield* periodic({ does: "say that the edge is at work", every: heartbeat.everySeconds * 1_000 }, beat)
  yield* reportLoad({ id: node.id, socket: place.socket }, routes, sql)
  yield* Effect.forkScoped(
    Effect.repeat(
      Effect.andThen(
        Effect.sync(() => changes.everything()),
        wake
      ),
      Schedule.spaced(compareEvery)
    )
  )
  yield* Effect.addFinalizer(() =>
    nodes.leave(node.id).pipe(answered("take a node of the edge back", 2_000), Effect.ignore)
  )
})

/** Where processes of this machine reach what listens on all addresses. */
const reachedAt = (address: string) =>
  address === "0.0.0.0" ? "127.0.0.1" : address === "::" ? "::1" : address
