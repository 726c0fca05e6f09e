/** A control plane with an edge and a real container engine, and apps on it. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppOptions } from "#src/apps/options.ts"
import { newUser } from "#test/cli/svc.ts"
import { Containers } from "#test/executions/world.ts"
import { sh } from "#test/setup/containers.ts"
import { type Answer, Plane } from "#test/setup/control-plane.ts"
import { TestEdge, testEdge } from "#test/setup/edge.ts"
import { eventually } from "#test/setup/wait.ts"

export const appPlane = (
  values: Partial<AppOptions> = {},
  variables: Readonly<Record<string, string>> = {},
  containers = Containers.layer
) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const { socket, registry } = yield* Containers
      const defaults = yield* AppOptions
      return testEdge({ containerSocket: socket }, { SVC_REGISTRIES: registry, ...variables }).pipe(
        Layer.provide(Layer.succeed(AppOptions, { ...defaults, backoffMs: [200, 60_000], ...values }))
      )
    })
  ).pipe(Layer.provideMerge(containers))

/** Runs a command as somebody who is signed in. */
export const operator = Effect.gen(function* () {
  const { url, apiKey, session } = yield* Plane
  const { svc, signIn } = yield* newUser
  signIn({ apiUrl: url, organization: "main", apiKey, session })
  return svc
})

/** A project with its production environment, which has an address by then. Answers the path and the host name. */
export const makeShop = Effect.fnUntraced(function* (slug: string, runtimeClass = "always-on") {
  const { call } = yield* Plane
  const body = {
    name: slug,
    slug,
    runtimeClass,
    ...(runtimeClass === "always-on" ? { region: "local" } : {})
  }
  const made = yield* call("POST", "/v1/orgs/main/projects", { body })
  if (made.status !== 201) return yield* Effect.die(new Error(made.text))
  const path = `/v1/orgs/main/projects/${slug}`
  const listed = yield* eventually("it has an address", call("GET", `${path}/environments`), ({ body }) =>
    body.some((one: Answer["body"]) => one.slug === "production" && one.address !== null)
  )
  const { address } = listed.body.find((one: Answer["body"]) => one.slug === "production")
  return { path, host: new URL(address).hostname }
})

/**
 * A server of one program: it answers every request with its text, and with what `at` says for a path. What it gets on
 * `/log` it prints.
 */
export const server = (text: string, before = "") =>
  sh(`${before}
    mkdir -p /tmp/www 2>/dev/null || busybox mkdir -p /tmp/www
    busybox printf '%s' "${text}" > /tmp/www/index.html
    echo "serving ${text} on $PORT"
    trap 'echo told to end; kill $!; exit 0' TERM
    busybox httpd -f -p "$PORT" -h /tmp/www &
    wait $!`)

/**
 * A server that takes connections of all kinds: `/slow` answers after a second, a WebSocket gets back what it sends, and
 * after `/fail` the instance answers `/health` with 500, and after `/leave` it takes no connection and ends a moment later. Each answer names the instance after the text.
 */
export const listener = (text: string) =>
  sh(`
    busybox cat > /tmp/answer <<'END'
read -r method path rest
upgrade=
while read -r line; do
  case "$line" in
    [Uu]pgrade:*) upgrade=1 ;;
    ?) break ;;
  esac
done
if [ -n "$upgrade" ]; then
  busybox printf 'HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\\r\\n\\r\\n'
  exec busybox cat
fi
status='200 OK'
case "$path" in
  /slow) busybox sleep 1 ;;
  /fail) : > /tmp/failing ;;
  /leave) kill $PPID ;;
  /health) [ -e /tmp/failing ] && status='500 Internal Server Error' ;;
esac
body="$TEXT $HOSTNAME"
busybox printf 'HTTP/1.1 %s\\r\\nConnection: close\\r\\nContent-Length: %s\\r\\n\\r\\n%s' "$status" "\${#body}" "$body"
END
    export TEXT="${text}" HOSTNAME="$(busybox hostname)"
    trap 'kill $!; exit 0' TERM
    busybox nc -ll -p "$PORT" -e /bin/busybox sh /tmp/answer &
    wait $!
    busybox sleep 1`)

export const deploy = Effect.fnUntraced(function* (
  path: string,
  command: ReadonlyArray<string>,
  more: object = {}
) {
  const { call } = yield* Plane
  const { openImage } = yield* Containers
  const made = yield* call("POST", `${path}/deployments`, { body: { image: openImage, command, ...more } })
  if (made.status !== 202) return yield* Effect.die(new Error(made.text))
  return String(made.body.id)
})

export const readDeployment = (path: string, id: string) =>
  Effect.flatMap(Plane, ({ call }) =>
    Effect.map(call("GET", `${path}/deployments/${id}`), ({ body }) => body)
  )

/** Once it has come to an end, whichever. */
export const over = (path: string, id: string) =>
  eventually(
    `the deployment ${id} is over`,
    readDeployment(path, id),
    ({ finishedAt }) => finishedAt !== null
  )

export const ready = Effect.fnUntraced(function* (path: string, id: string) {
  const done = yield* over(path, id)
  if (done.state !== "ready") return yield* Effect.die(new Error(JSON.stringify(done)))
  return done
})

export const readApp = (path: string) =>
  Effect.flatMap(Plane, ({ call }) => Effect.map(call("GET", `${path}/app`), ({ body }) => body))
export const readInstances = (path: string) =>
  Effect.flatMap(Plane, ({ call }) =>
    Effect.map(call("GET", `${path}/app/instances`), ({ body }): ReadonlyArray<Answer["body"]> => body)
  )

export const answerOf = (host: string) =>
  Effect.flatMap(TestEdge, ({ request }) =>
    Effect.map(request(host, "/"), ({ status, text }) => `${status} ${text}`)
  )

export const containersOf = Effect.fnUntraced(function* (label: string) {
  const { podman } = yield* Containers
  return podman("ps", "-a", "--filter", `label=${label}`, "--format", "{{.Names}}")
    .split("\n")
    .filter((name) => name !== "")
})
