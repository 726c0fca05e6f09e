/** The compiler as a library, which TypeScript 7 no longer is. */
export { ts as default } from "@ts-morph/common"
