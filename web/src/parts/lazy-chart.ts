import { lazily } from "./lazily.ts"

/** The chart, which is loaded with the library that draws it when the first one is shown. */
export const Chart = lazily(async (get) => (await get(() => import("./chart.tsx"))).default)
