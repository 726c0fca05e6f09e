/** The files that tell a managed Postgres server what to be: rendered whole, so that comparing them is enough. */
import { createHash } from "node:crypto"
import type { DatabaseSize } from "#schemas/catalog.ts"

/** The control plane's own superuser. Reached through the Unix socket by operating system identity, never by password. */
export const controlUser = "svc_control"
export const appUser = "app"
export const appDatabase = "app"
/** Where the control user works. The application's database is made as a copy of it. */
export const controlDatabase = "postgres"
/** Holds the extensions that the platform installs. It is the control user's: the application can use and not change it. */
export const extensionSchema = "extensions"

export interface PostgresSettings {
  readonly size: DatabaseSize
  readonly port: number
  readonly listenOn: string
  readonly socketDir: string
  readonly dataDir: string
  readonly confDir: string
  /** Where finished segments of the log are put, seen from the data folder; absent: they are not kept. */
  readonly archiveDir: string | undefined
  /** For a standby: where its primary listens, and which slot keeps the log for it. */
  readonly follows: { readonly port: number; readonly slot: string } | undefined
  /** Whether standbys follow it, or would if it took the primary's place. */
  readonly replicated: boolean
  /** Files, seen from the data folder. */
  readonly certificate: string
  readonly key: string
  /** Operating system users that may act as the control user. */
  readonly systemUsers: ReadonlyArray<string>
}

/** A value of the configuration file. */
export const quoted = (value: string) => `'${value.replaceAll("'", "''")}'`
/** One word of a shell command; PostgreSQL itself replaces what follows a percent sign. */
export const shellWord = (value: string) => `'${value.replaceAll("'", `'\\''`)}'`.replaceAll("%", "%%")

/**
 * Copies a finished log segment under a temporary name, makes it durable, and renames it: what has its name in the
 * archive is whole, and has the time of its last write, by which recovery points are told. A segment that is there
 * already with the same content is done (a crash may repeat the call).
 * (PostgreSQL documentation, "Continuous Archiving": the command must not overwrite and must answer truthfully.)
 */
const archiveCommand = (archiveDir: string) => {
  const target = `${shellWord(`${archiveDir}/`)}%f`
  const temporary = `${shellWord(`${archiveDir}/.`)}%f.new`
  return `if test -f ${target}; then cmp -s %p ${target}; else cp -p %p ${temporary} && sync ${temporary} && mv ${temporary} ${target}; fi`
}

/** A value of a connection string (libpq, "Connection Strings"). */
const connectionValue = (value: string) => `'${value.replaceAll(/[\\']/g, "\\$&")}'`

/** Reads are served while the log is replayed; the log comes over the primary's Unix socket. */
const followingLines = ({ follows, socketDir }: PostgresSettings): ReadonlyArray<string> =>
  follows === undefined
    ? [
        // When it takes over from another server it replays the log that it has, and opens.
        "hot_standby = off",
        "restore_command = 'false'"
      ]
    : [
        "hot_standby = on",
        `primary_conninfo = ${quoted(
          `host=${connectionValue(socketDir)} port=${follows.port} user=${controlUser} application_name=${follows.slot}`
        )}`,
        `primary_slot_name = ${quoted(follows.slot)}`,
        "wal_receiver_status_interval = 1s",
        "wal_retrieve_retry_interval = 500ms"
      ]

export const renderConfig = (settings: PostgresSettings): string => {
  const { size } = settings
  const lines = [
    `data_directory = ${quoted(settings.dataDir)}`,
    `hba_file = ${quoted(`${settings.confDir}/pg_hba.conf`)}`,
    `ident_file = ${quoted(`${settings.confDir}/pg_ident.conf`)}`,
    `listen_addresses = ${quoted(settings.listenOn)}`,
    `port = ${settings.port}`,
    `unix_socket_directories = ${quoted(settings.socketDir)}`,
    "unix_socket_permissions = 0700",
    `max_connections = ${size.maxConnections}`,
    "reserved_connections = 0",
    "superuser_reserved_connections = 3",
    `shared_buffers = '${size.sharedBuffers / 1024}kB'`,
    `work_mem = '${size.workMem / 1024}kB'`,
    // Each of the three autovacuum workers may use as much.
    `maintenance_work_mem = '${size.memoryMb / 16}MB'`,
    "huge_pages = off",
    // Asynchronous readers would be three processes for every idle database.
    "io_method = sync",
    "max_worker_processes = 4",
    "jit = off",
    "ssl = on",
    `ssl_cert_file = ${quoted(settings.certificate)}`,
    `ssl_key_file = ${quoted(settings.key)}`,
    "ssl_min_protocol_version = 'TLSv1.2'",
    "password_encryption = 'scram-sha-256'",
    "wal_level = replica",
    ...(settings.archiveDir === undefined
      ? ["archive_mode = off"]
      : [
          "archive_mode = on",
          `archive_command = ${quoted(archiveCommand(settings.archiveDir))}`,
          // Bounds what a lost machine can cost to a minute of writes.
          "archive_timeout = 60s"
        ]),
    ...followingLines(settings),
    // One that has just taken the primary's place has no slots yet: what the other standby still needs of the log must
    // outlive the checkpoints until that one is there again.
    ...(settings.replicated ? ["wal_keep_size = 64MB"] : []),
    // A standby that is away for longer is copied again: it must not fill the disk.
    "max_slot_wal_keep_size = 4GB",
    "min_wal_size = 32MB",
    "max_wal_size = 256MB",
    "shared_preload_libraries = 'pg_stat_statements'",
    "pg_stat_statements.track_utility = off",
    // Statements of users may hold their secrets.
    "log_statement = none",
    "log_min_error_statement = panic",
    "log_min_messages = warning",
    "timezone = 'UTC'",
    "log_timezone = 'UTC'"
  ]
  const text = lines.join("\n")
  // The server tells this back, so that one question shows whether it has read the file as it is.
  return `${text}\nsvc.config = '${createHash("sha256").update(text).digest("hex").slice(0, 32)}'\n`
}

export const configDigest = (config: string): string => /svc\.config = '([0-9a-f]+)'/.exec(config)?.[1] ?? ""

/** Over the Unix socket: the control user, and nobody else. */
export const socketAccess = `local all ${controlUser} peer map=svc\n`

/** Over the socket also the log, for standbys. Over the network: TLS, a password, the application's role, its own database, and nothing else. */
export const renderAccess = (): string =>
  [
    socketAccess.trimEnd(),
    `local replication ${controlUser} peer map=svc`,
    `hostssl ${appDatabase} ${appUser} 0.0.0.0/0 scram-sha-256`,
    `hostssl ${appDatabase} ${appUser} ::/0 scram-sha-256`,
    ""
  ].join("\n")

export const renderIdentities = (settings: Pick<PostgresSettings, "systemUsers">): string =>
  `${settings.systemUsers.map((user) => `svc "${user}" ${controlUser}`).join("\n")}\n`

/** How a new data folder is made. Whoever connects is decided by the files above, never by what initdb writes. */
export const initdbArguments = (folder: string): ReadonlyArray<string> => [
  `--pgdata=${folder}`,
  `--username=${controlUser}`,
  "--auth=reject",
  "--encoding=UTF8",
  "--locale-provider=builtin",
  "--builtin-locale=C.UTF-8",
  "--locale=C",
  // Small segments: an idle database keeps few megabytes of log.
  "--wal-segsize=4",
  "--data-checksums",
  "--no-instructions"
]
