/** A tracer that keeps every span, for tests of what traces may tell. */
import * as Layer from "effect/Layer"
import * as Tracer from "effect/Tracer"

export const makeRecording = () => {
  const traced: Array<Tracer.NativeSpan> = []
  const recording = Layer.succeed(
    Tracer.Tracer,
    Tracer.make({
      span: (options) => {
        const span = new Tracer.NativeSpan(options)
        traced.push(span)
        return span
      }
    })
  )
  return { traced, recording }
}
