/** A cache: what it is, and how to connect to it. */
import { Caches } from "#src/caches/api.ts"
import { idempotent } from "../api/call.ts"
import { services } from "../api/services.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Credentials } from "./credentials.tsx"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

export const CachePanel = ({ resource, project }: ServiceProps) => {
  const params = { orgId: useCaller().org.slug, projectId: project, cacheId: resource.uid }
  const { value } = useAnswer(
    `cache ${resource.uid}`,
    () => services.caches.get({ params }),
    resource.revision
  )
  const cache = value?.body
  return (
    <>
      {cache !== undefined && (
        <Tiles>
          <Tile value={`${cache.memoryMb} MiB`} says={`memory, ${cache.sku}`} />
          <Tile value={cache.evictionPolicy} says="when its memory is full" />
          <Tile value={cache.persistence} says="what of it survives a restart" />
          <Tile value={cache.tls ? "TLS" : "no TLS"} says="connections" />
        </Tiles>
      )}
      <Credentials
        by={Caches.endpoints.rotateCredentials}
        name={resource.name}
        facts={
          cache === undefined
            ? []
            : [
                ["Host", cache.host ?? "not yet"],
                ["Port", cache.port ?? "not yet"]
              ]
        }
        rotate={() => services.caches.rotateCredentials({ params, headers: idempotent() })}
      />
    </>
  )
}
