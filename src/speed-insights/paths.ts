/** Routes that are no operations of the framework, and the file that one of them serves. */
export const collectPath = "/v1/speed-insights/collect/:projectRef"
export const clientPath = "/v1/speed-insights/client.js"
export const clientFile = new URL("client/client.js", import.meta.url)
