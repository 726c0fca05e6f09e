/** What other features use of organizations. */
import * as Layer from "effect/Layer"
import { Mail } from "#src/mail/Mail.ts"
import { Invitations } from "./Invitations.ts"

export const invitationRecords = Invitations.layer.pipe(Layer.provide(Mail.layer))
