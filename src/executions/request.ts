/** What a request for an execution comes to, and everything about it that cannot be had here. */
import { Execution, type ExecutionSpec } from "#schemas/execution.ts"
import { regionFault } from "#schemas/placement.ts"
import type { Fault } from "#src/api/definition/problem.ts"
import { pointerTo } from "#src/api/failure.ts"
import { type CatalogContent, idsOf } from "#src/catalog/content.ts"
import type { ExecutionRequest } from "./api.ts"
import { isListed, parseImage, registryOf } from "./image.ts"

/** All values together, so that they fit beside a program's arguments (execve(2)). */
const longestEnv = 128 * 1024

/** A deployment of the project whose image is kept. */
export interface RunnableDeployment {
  readonly uid: string
  readonly environment: string
  readonly region: string
  readonly imageDigest: string
}

export const specOf = (
  request: ExecutionRequest,
  deployment: RunnableDeployment | undefined
): ExecutionSpec => ({
  image: deployment?.imageDigest ?? request.image ?? "",
  ...(deployment && { deployment: { uid: deployment.uid, environment: deployment.environment } }),
  command: request.command,
  region: request.region,
  resources: { cpuKind: "shared", cpus: 1, memoryMb: 512, ...request.resources },
  runtime: { nestedContainers: false, ...request.runtime },
  timeoutSeconds: request.timeoutSeconds ?? 3_600,
  services: request.services ?? deployment !== undefined,
  cancelRequested: false
})

export interface Offered {
  readonly catalog: CatalogContent
  readonly registries: ReadonlyArray<string>
  readonly nestedContainers: boolean
  readonly deployment: RunnableDeployment | undefined
}

export const executionFaults = (
  request: ExecutionRequest,
  spec: ExecutionSpec,
  { catalog, registries, nestedContainers, deployment }: Offered
): ReadonlyArray<Fault> => {
  const faults: Array<Fault> = []
  const fault = (pointer: string, message: string) => void faults.push({ pointer, message })
  const { limits, cpuKinds } = catalog.executions
  const bounded = (
    pointer: string,
    value: number,
    { min, max }: { readonly min: number; readonly max: number }
  ) => {
    if (!(value >= min && value <= max)) fault(pointer, `must be from ${min} to ${max}`)
  }
  const image = request.image === undefined ? undefined : parseImage(request.image)
  if ((request.image === undefined) === (deployment === undefined))
    fault("", "must have one of image and deploymentId")
  if (request.image !== undefined && image === undefined)
    fault("/image", "must be the name of an image, such as docker.io/library/alpine:3 or name@sha256:...")
  if (request.command[0] === "") fault("/command/0", "must name a program")
  const region = regionFault(Execution, spec, idsOf(catalog))
  if (region !== undefined) fault(`/${region.field}`, region.message)
  if (deployment !== undefined && deployment.region !== spec.region)
    fault("/region", `must be the deployment's, ${deployment.region}: its image is there`)
  if (deployment !== undefined && !spec.services)
    fault("/services", "must not be false with a deployment, whose variables it gets")
  if (!cpuKinds.includes(spec.resources.cpuKind))
    fault("/resources/cpuKind", `must be one of: ${cpuKinds.join(", ")}`)
  bounded("/resources/cpus", spec.resources.cpus, limits.cpus)
  bounded("/resources/memoryMb", spec.resources.memoryMb, limits.memoryMb)
  bounded("/timeoutSeconds", spec.timeoutSeconds, limits.timeoutSeconds)
  if (spec.runtime.nestedContainers && !nestedContainers)
    fault("/runtime/nestedContainers", "is not offered here: no sandbox runtime is configured")
  const env = Object.entries(request.env ?? {})
  if (env.length > limits.maxEnvVariables)
    fault("/env", `must have at most ${limits.maxEnvVariables} variables`)
  const size = env.reduce((sum, [key, value]) => sum + Buffer.byteLength(key) + Buffer.byteLength(value), 0)
  if (size > longestEnv) fault("/env", `must be at most ${longestEnv} bytes in all`)
  for (const [key] of env) {
    if (key.includes("\0")) fault(`/env${pointerTo([key])}`, "must not contain the NUL character")
  }
  const { imagePullCredentials: credentials } = request
  if (credentials !== undefined) {
    const pointer = "/imagePullCredentials/registry"
    const registry = registryOf(credentials.registry)
    if (registry === undefined) fault(pointer, "must be the host of a registry")
    else if (!isListed(registry, registries))
      fault(pointer, `is none that takes credentials here: ${registries.join(", ")}`)
    else if (deployment !== undefined)
      fault("/imagePullCredentials", "are for an image, not for a deployment")
    else if (image !== undefined && image.registry !== registry)
      fault(pointer, `is not where the image comes from, which is ${image.registry}`)
  }
  return faults
}
