/** The thread that the engine has for itself. What runs there is the program's own: it is not put into this file as well. */
import { enableCompileCache } from "node:module"
import { fileURLToPath } from "node:url"

enableCompileCache(fileURLToPath(new URL("../../node_modules/.cache/svc", import.meta.url)))
// Not awaited here: for that the bundler makes a file of everything that is loaded on demand.
void import("./run-engine.ts").then(({ runEngine }) => runEngine())
