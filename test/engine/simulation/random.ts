/** Numbers that a seed determines. Everything that may happen in one way or another asks here. */
import type * as Random from "effect/Random"

export class Seeded implements Random.Random {
  #a: number
  #b: number
  #c: number
  #counter = 1

  constructor(seed: number) {
    this.#a = seed | 0
    this.#b = (seed / 2 ** 32) | 0
    this.#c = 0x9e3779b9 | 0
    for (let i = 0; i < 12; i++) this.#next()
  }

  /** Small Fast Counting generator with 32-bit words (C. Doty-Humphrey, PractRand). */
  #next(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0
    this.#counter = (this.#counter + 1) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum
    return sum >>> 0
  }

  nextDoubleUnsafe(): number {
    return this.#next() / 2 ** 32
  }
  nextIntUnsafe(): number {
    return this.#next() - 2 ** 31
  }

  chance(probability: number): boolean {
    return this.nextDoubleUnsafe() < probability
  }
  between(low: number, high: number): number {
    return low + this.nextDoubleUnsafe() * (high - low)
  }
  /** Both ends included. */
  int(low: number, high: number): number {
    return Math.floor(this.between(low, high + 1))
  }
  pick<A>(from: ReadonlyArray<A>): A | undefined {
    return from[this.int(0, from.length - 1)]
  }
  /** One of the entries, by weight. */
  weighted<A>(entries: ReadonlyArray<readonly [weight: number, value: A]>): A {
    let left = this.nextDoubleUnsafe() * entries.reduce((sum, [weight]) => sum + weight, 0)
    for (const [weight, value] of entries) {
      left -= weight
      if (left < 0) return value
    }
    return entries.at(-1)![1]
  }
}
