/**
 * How many values fell into which bucket: percentiles of many sets of values together come from the sum of their buckets.
 * Buckets grow by a constant factor, so that a percentile is at most 1 % off the value with the same rank (Masson, Rim, Lee:
 * "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019).
 */
const accuracy = 0.01
const logGamma = Math.log((1 + accuracy) / (1 - accuracy))
/** Smaller values count as 0, which has the bucket 0. */
export const smallest = 1e-5
const offset = 1 - Math.ceil(Math.log(smallest) / logGamma)

/** One more than the bucket of the largest value that is taken. */
export const buckets = 1_400

export const bucketOf = (value: number): number =>
  value < smallest ? 0 : Math.min(buckets - 1, Math.ceil(Math.log(value) / logGamma) + offset)

/** The value in a bucket that is at most 1 % from all others in it. */
const middleOf = (bucket: number): number =>
  bucket === 0 ? 0 : (1 - accuracy) * Math.exp((bucket - offset) * logGamma)

/** Counts by bucket, of at most a few thousand sets at once: 11 kB each. */
export type Counts = Float64Array

export const emptyCounts = (): Counts => new Float64Array(buckets)

export const samplesOf = (counts: Counts): number => {
  let samples = 0
  for (const count of counts) samples += count
  return samples
}

/**
 * The smallest values that so large a part of all is not above, in the order of `quantiles`, which ascends: what
 * `percentile_disc` answers in SQL. Null: there are none.
 */
export const quantilesOf = (
  counts: Counts,
  quantiles: ReadonlyArray<number>
): ReadonlyArray<number | null> => {
  const samples = samplesOf(counts)
  let bucket = -1
  let before = 0
  return quantiles.map((quantile) => {
    if (samples === 0) return null
    while (before < quantile * samples && bucket < buckets - 1) before += counts[++bucket] ?? 0
    return middleOf(Math.max(0, bucket))
  })
}
