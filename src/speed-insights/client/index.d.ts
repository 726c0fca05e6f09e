export interface Options {
  /** `endpoint` of `svc speed get`. */
  readonly endpoint: string
  /** Default `production`. */
  readonly environment?: string
  /** Makes a route of a path, without what names a visitor or a thing. By default ids become `:id`. */
  readonly normalize?: (path: string) => string
  /** Measure nobody who asks not to be tracked (Do Not Track, Global Privacy Control). Default false. */
  readonly respectDoNotTrack?: boolean
}
export interface Measuring {
  /** Sends what there is now. */
  readonly flush: () => void
}
export declare const start: (options: Options) => Measuring
