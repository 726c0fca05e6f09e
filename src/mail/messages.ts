/** What our mails say: short, in plain words, with one link on a line of its own. */
import type { Message } from "./Mail.ts"

const message = (template: string, subject: string, ...paragraphs: ReadonlyArray<string>): Message => ({
  template,
  // A line break in a subject would be another header field.
  subject: oneLine(subject),
  text: `${paragraphs.join("\n\n")}\n`
})

/** Names are chosen by people, who may put anything into them. */
const oneLine = (text: string): string => text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, " ").trim()

const ignore = "If you did not ask for this, do nothing: nothing happens without the link."

export const signInLink = (link: string, minutes: number): Message =>
  message(
    "sign_in",
    "Your link to sign in",
    "Follow this link to sign in, or to finish signing up if you are new here:",
    link,
    `It works once, for ${minutes} minutes.`,
    ignore
  )

export const passwordReset = (link: string, minutes: number): Message =>
  message(
    "password_reset",
    "Choose a new password",
    "Follow this link to choose a new password:",
    link,
    `It works once, for ${minutes} minutes.`,
    ignore
  )

export const passwordChanged = (resetLink: string): Message =>
  message(
    "password_changed",
    "Your password was changed",
    "The password of your account was just changed, and every other session was signed out.",
    "If that was not you, choose another password at once:",
    resetLink
  )

export const invitation = (
  organization: string,
  inviter: string | null,
  role: string,
  link: string,
  days: number
): Message =>
  message(
    "invitation",
    `Invitation to ${organization}`,
    inviter === null
      ? `You are invited to the organization "${oneLine(organization)}" as ${role}.`
      : `${oneLine(inviter)} invites you to the organization "${oneLine(organization)}" as ${role}.`,
    "Follow this link to accept, with an account that has this e-mail address:",
    link,
    `It works for ${days} days. If you do not know what this is about, do nothing.`
  )

export const webhookDisabled = (
  organization: string,
  host: string,
  reason: string,
  publicUrl: string
): Message =>
  message(
    "webhook_disabled",
    `A webhook of ${organization} was disabled`,
    `Events of the organization "${oneLine(organization)}" are no longer sent to ${host}.`,
    `${reason}.`,
    "Once it works again, enable it with `svc webhooks update --enable`; what failed can be sent again from its list of deliveries.",
    `This was sent to the admins of the organization by ${publicUrl}`
  )

/** To the person who let it in. */
export const agentLetIn = (
  client: string,
  organization: string,
  role: string,
  scopes: ReadonlyArray<string>,
  publicUrl: string
): Message =>
  message(
    "agent_let_in",
    `${client} may now act for you in ${organization}`,
    `You let "${oneLine(client)}" act for you in the organization "${oneLine(organization)}" as ${role}, with ${scopes.length === 1 ? "one operation" : `${scopes.length} operations`}.`,
    "That is what the program calls itself; nobody checked it.",
    "Here you see which programs may act for you, and take it back. If you did not let it in, choose another password as well:",
    `${publicUrl}/account/agents`
  )

/** Where the mail about an invitation leads. The token is a query parameter, which traces leave out. */
export const invitationLink = (publicUrl: string, token: string): string =>
  `${publicUrl}/invitation?token=${token}`

const resolutions: Readonly<Record<string, string>> = {
  disabled: "It was switched off.",
  deleted: "It was deleted.",
  resource_gone: "What it was about was deleted, or has ended."
}

export const alert = ({
  fires,
  name,
  severity,
  project,
  condition,
  reason,
  publicUrl
}: {
  readonly fires: boolean
  readonly name: string
  readonly severity: string
  readonly project: string
  /** A sentence without its full stop. */
  readonly condition: string
  /** Why it is over, if not because its condition is. */
  readonly reason: string | null
  readonly publicUrl: string
}): Message =>
  message(
    fires ? "alert_firing" : "alert_resolved",
    `[${severity}] ${name} ${fires ? "fires" : "is over"} in ${project}`,
    `The alert "${oneLine(name)}" of the project "${oneLine(project)}" ${fires ? "fires" : "is over"}.`,
    `${oneLine(condition)}.`,
    ...(fires ? [] : [resolutions[reason ?? ""] ?? "Its condition has not held for a while."]),
    `\`svc alerts history\` tells what happened. This was sent to members of the organization by ${publicUrl}`
  )
