/** The declaration of what stands before operations that strangers may call; `src/api/public-handler.ts` does it. */
import * as HttpApiMiddleware from "effect/http-api/HttpApiMiddleware"

export class PublicAccess extends HttpApiMiddleware.Service<PublicAccess>()("svc/api/PublicAccess") {}
