/** The declaration of what stands before operations that strangers may call; `src/api/public-handler.ts` does it. */
import * as HttpApiMiddleware from "effect/http-api/HttpApiMiddleware"

export class Door extends HttpApiMiddleware.Service<Door>()("svc/api/Door") {}
