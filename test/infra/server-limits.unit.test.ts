import { assert, it } from "vitest"
import { cacheSizes, databaseSizes } from "#schemas/catalog.ts"
import { cacheLimits, clientBufferBytes, databaseLimits, limitFaults } from "#src/infra/host/server-limits.ts"

const MiB = 2 ** 20

it("limits follow from the size", () => {
  const of = (sku: keyof typeof cacheSizes, appendOnly: boolean) =>
    cacheLimits(cacheSizes[sku], appendOnly).memoryBytes / MiB
  assert.deepStrictEqual(
    [of("cache-n1", false), of("cache-n1", true), of("cache-s2", true)],
    [448, 704, 4096 * 2.25 + 512 + 64]
  )
  assert.strictEqual(clientBufferBytes(cacheSizes["cache-n1"].memoryMb), 64 * MiB)
  for (const size of Object.values(databaseSizes)) {
    const { memoryBytes, processes } = databaseLimits(size)
    assert.isAbove(memoryBytes, 4 * size.sharedBuffers)
    assert.isAbove(memoryBytes, size.sharedBuffers + size.maxConnections * 2 * size.workMem)
    assert.isAbove(processes, 2 * size.maxConnections)
  }
})

it("a lower limit waits until there is room, and any other difference does not", () => {
  const wanted = { memoryBytes: 100 * MiB, cpus: 1, processes: 64 }
  const held = (memoryBytes: number, heldBytes: number) => ({
    kills: 0,
    oomScore: 500,
    group: { inside: true, limits: { ...wanted, memoryBytes }, heldBytes }
  })
  assert.deepStrictEqual(limitFaults(held(100 * MiB, 90 * MiB), wanted), [])
  assert.deepStrictEqual(limitFaults(held(200 * MiB, 95 * MiB), wanted), [], "it would be ended")
  assert.lengthOf(limitFaults(held(200 * MiB, 50 * MiB), wanted), 1)
  assert.lengthOf(limitFaults(held(Number.POSITIVE_INFINITY, 50 * MiB), wanted), 1)
  assert.lengthOf(limitFaults(held(50 * MiB, 40 * MiB), wanted), 1)
  assert.lengthOf(limitFaults({ ...held(100 * MiB, 0), oomScore: 0 }, wanted), 1)
  assert.deepStrictEqual(
    limitFaults({ kills: 3, oomScore: 500 }, wanted),
    [],
    "no groups, no limits to differ"
  )
  const outside = { ...held(100 * MiB, 0).group, inside: false }
  assert.lengthOf(limitFaults({ kills: 0, group: outside }, wanted), 1)
})
