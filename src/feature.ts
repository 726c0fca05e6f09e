/**
 * What a feature of the product is to the composition: everything it adds, in one value. `features.ts` lists the
 * features; the API, the control plane and the command line are made from that list.
 *
 * A feature's own file imports definitions of operations only, which load in a browser. What needs Node (handlers,
 * loops, commands) is behind functions that load it.
 */
import * as Config from "effect/Config"
import type * as Command from "effect/cli/Command"
import type * as HttpRouter from "effect/http/HttpRouter"
import type * as HttpApiGroup from "effect/http-api/HttpApiGroup"
import * as Layer from "effect/Layer"
import type * as Schema from "effect/Schema"
import type { Access } from "./access/Access.ts"
import type { AccessRecords } from "./access/AccessRecords.ts"
import type { AuditWriter } from "./access/AuditWriter.ts"
import type { RateLimits } from "./access/RateLimits.ts"
import type { Cursors } from "./api/cursor.ts"
import type { Described } from "./api/definition/openapi.ts"
import type { PublicAccess } from "./api/definition/public-access.ts"
import type { Authorize } from "./api/definition/scope.ts"
import type { ReconcileNow } from "./api/ReconcileNow.ts"
import type { Regions } from "./api/Regions.ts"
import type { CliFailure } from "./cli/failure.ts"
import type { AppConfig } from "./config.ts"
import type { Registry } from "./engine/Reconciler.ts"
import type { WorkStore } from "./engine/WorkStore.ts"
import type { CertificateAuthority } from "./infra/CertificateAuthority.ts"
import type { Host } from "./infra/host/Host.ts"
import type { PostgresBinaries } from "./infra/postgres/PostgresBinaries.ts"
import type { Invocations } from "./outbound/Invocations.ts"
import type { Outbound } from "./outbound/Outbound.ts"
import type { Db } from "./store/Db.ts"
import type { Feed } from "./store/Feed.ts"
import type { Fingerprint } from "./store/Fingerprint.ts"
import type { KeyRing } from "./store/KeyRing.ts"
import type { Resources } from "./store/Resources.ts"
import type { PlatformSecrets, Secrets } from "./store/Secrets.ts"
import type { TableRule, TableRules } from "./store/table-rules.ts"

/**
 * The services that every part of every feature may use. What a feature needs of another feature it provides itself,
 * by that feature's layer: layers are memoized by reference, so it is built once for the whole process.
 */
export type Core =
  | AppConfig
  | CertificateAuthority
  | Db
  | ReconcileNow
  | Feed
  | Fingerprint
  | Host
  | Invocations
  | KeyRing
  | Outbound
  | PlatformSecrets
  | PostgresBinaries
  | Resources
  | Secrets
  | TableRules
  | WorkStore

/** What handlers may use when they are made; at each request they may ask for the services of {@link Core} still. */
export type ApiCore =
  | Core
  | HttpRouter.Request.From<"Requires", Core>
  | Access
  | AccessRecords
  | AuditWriter
  | Cursors
  | PublicAccess
  | Authorize
  | RateLimits
  | Regions

/** Reconcilers register themselves. `Engine` needs them, and so they cannot need it. */
export type ReconcilerCore = Exclude<Core, ReconcileNow | WorkStore> | Registry

/** Why a process does not start, with a message for whoever operates it. */
export interface StartError {
  readonly _tag: string
  readonly message: string
}

/** The parts of a feature that run in the control plane, where `Groups` are its groups of operations. */
export interface Server<Groups extends HttpApiGroup.Constraint = never> {
  /** Handlers of all operations of the feature's groups. */
  readonly handlers: Layer.Layer<HttpApiGroup.ToService<"svc", Groups>, StartError, ApiCore>
  /** Pages and other routes that are no operations of the API. */
  readonly routes?: Layer.Layer<never, StartError, ApiCore | HttpRouter.HttpRouter>
  /** What calls operations within the process. It begins when all of them are there, beside the handlers. */
  readonly callers?: Layer.Layer<never, StartError, ApiCore | HttpRouter.HttpRouter>
  /** Reconcilers of the feature's kinds. */
  readonly reconcilers?: Layer.Layer<never, StartError, ReconcilerCore>
  /** Loops beside the engine, in processes of the role `engine`. */
  readonly loops?: Layer.Layer<never, StartError, Core>
  /** What serves the apps' addresses before the state store is asked, in processes of the role `edge`. */
  readonly edgeBeforeStore?: Layer.Layer<never, never, AppConfig | Host>
  /** What serves the apps' addresses, in processes of the role `edge`. */
  readonly edge?: Layer.Layer<never, StartError, Core>
}

// biome-ignore lint/suspicious/noExplicitAny: commands of a list differ in name and input.
export type AnyCommand = Command.Command<any, any, any, CliFailure, Command.Environment>

export interface Commands {
  /** `svc <command>`, in the order of the help. */
  readonly commands: ReadonlyArray<AnyCommand>
  /** `svc admin <command>`: what needs access to the state store itself. */
  readonly admin?: ReadonlyArray<AnyCommand>
}

export interface Feature<Groups extends HttpApiGroup.Constraint, Public extends HttpApiGroup.Constraint> {
  /** Groups of operations that take a credential. */
  readonly groups: ReadonlyArray<Groups>
  /** Groups of operations that strangers may call. */
  readonly publicGroups: ReadonlyArray<Public>
  /** Schemas that the API document describes though no operation's body refers to them. */
  readonly schemas: ReadonlyArray<Schema.Constraint>
  /** Routes that are no operations, as the API document describes them. */
  readonly described: () => Described
  /** Beginnings of paths whose rest is a secret: requests to them leave no trace. */
  readonly untraced: ReadonlyArray<string>
  readonly server: () => Promise<Server<Groups | Public>>
  /** What the variables of the process say to the feature alone. */
  readonly settings: () => Promise<Config.Config<unknown>>
  /** Rules of the tables that the feature owns. */
  readonly tables: () => Promise<ReadonlyArray<TableRule>>
  readonly commands: () => Promise<Commands>
}

/** @see Feature for what each part means; only `server` is required. */
export const defineFeature = <
  const Groups extends ReadonlyArray<HttpApiGroup.Constraint> = [],
  const Public extends ReadonlyArray<HttpApiGroup.Constraint> = []
>(feature: {
  readonly groups?: Groups
  readonly publicGroups?: Public
  readonly schemas?: ReadonlyArray<Schema.Constraint>
  readonly described?: () => Described
  readonly untraced?: ReadonlyArray<string>
  readonly server: () => Promise<Server<NoInfer<Groups[number] | Public[number]>>>
  readonly settings?: () => Promise<Config.Config<unknown>>
  readonly tables?: () => Promise<ReadonlyArray<TableRule>>
  readonly commands?: () => Promise<Commands>
}): Feature<Groups[number], Public[number]> => ({
  groups: feature.groups ?? [],
  publicGroups: feature.publicGroups ?? [],
  schemas: feature.schemas ?? [],
  described: feature.described ?? (() => ({ paths: {}, schemas: {}, securitySchemes: {} })),
  untraced: feature.untraced ?? [],
  server: feature.server,
  settings: feature.settings ?? (async () => Config.succeed({})),
  tables: feature.tables ?? (async () => []),
  commands: feature.commands ?? (async () => ({ commands: [] }))
})

/** A list of layers that need the same, as one; they are built side by side. */
export const mergeLayers = <A, E, R>(layers: ReadonlyArray<Layer.Layer<A, E, R>>): Layer.Layer<A, E, R> => {
  const [first, ...rest] = layers
  if (first === undefined) throw new Error("There is no layer to merge")
  return Layer.mergeAll(first, ...rest)
}
