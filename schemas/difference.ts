/** One way in which what is there departs from what was asked for. Neither part may hold a secret. */
import * as Schema from "effect/Schema"

export const Difference = Schema.Struct({
  field: Schema.String.annotate({
    description:
      "JSON Pointer into the specification, such as `/sku`, or a word for the whole, such as `/process`"
  }),
  message: Schema.String.annotate({ description: "A sentence: what is there and what should be" })
}).annotate({ identifier: "Difference" })
export type Difference = typeof Difference.Type
