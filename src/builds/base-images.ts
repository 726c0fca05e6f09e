/** Images that apps are built in and run on, as the operator lists them, and which of them is for an app. */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import semver from "semver"
import { type Runtime, runtimes } from "#schemas/build-plan.ts"
import { list } from "#src/settings.ts"
import { fits } from "./versions.ts"

export interface BaseImage {
  readonly runtime: Runtime["name"]
  /** Such as `26` or `3.13`; undefined: it is for whatever version is asked for. */
  readonly version: string | undefined
  readonly reference: string
}

const entry = /^(?:([a-z]+)(?:@([0-9][0-9.]*))?=)?([^\s=]+)$/

/** Of one part of the list; undefined: it is none. */
const imageOf = (part: string): BaseImage | undefined => {
  const [, named = "node", version, reference] = entry.exec(part) ?? []
  const runtime = runtimes.find((one) => one === named)
  const isVersion = version === undefined || semver.validRange(version) !== null
  return runtime === undefined || reference === undefined || !isVersion
    ? undefined
    : { runtime, version, reference }
}

/**
 * What there is where the operator says nothing: the official images, the newest version first. By their tags and not by
 * their digests, which change with every repair of what is in them.
 */
export const defaultBaseImages = [
  ...["26", "24", "22"].map((version) => `node@${version}=docker.io/library/node:${version}-slim`),
  "python@3.13=docker.io/library/python:3.13-slim",
  "go@1.25=docker.io/library/golang:1.25"
].join(",")

/** `[runtime[@version]=]reference`, separated by commas. */
export const BaseImages = Schema.String.check(
  Schema.makeFilter((text: string) => {
    const bad = list(text).find((part) => imageOf(part) === undefined)
    return bad === undefined ? undefined : `must not have ${bad}; write node@26=registry/name@sha256:...`
  })
)
export const baseImagesOf = (text: string): ReadonlyArray<BaseImage> =>
  list(text).flatMap((part) => imageOf(part) ?? [])

const anyNode: Runtime = { name: "node", versions: null, saidBy: null }

/** The first that fits; else what there is, in words. */
export const chooseBase = (
  images: ReadonlyArray<BaseImage>,
  wanted: Runtime = anyNode
): Result.Result<BaseImage, string> => {
  const ofRuntime = images.filter(({ runtime }) => runtime === wanted.name)
  const found = ofRuntime.find(({ version }) => version === undefined || fits(version, wanted))
  if (found !== undefined) return Result.succeed(found)
  const title = titles[wanted.name]
  if (ofRuntime.length === 0)
    return Result.fail(`Nothing is built for ${title} here: SVC_BUILD_IMAGE names no image of it`)
  const there = ofRuntime.map(({ version }) => version).join(", ")
  return Result.fail(
    `${title} ${wanted.versions} (${wanted.saidBy}) is not here; there is ${there}. ${wanted.name}Version in svc.yaml chooses another one`
  )
}

const titles = { node: "Node", python: "Python", go: "Go" }
