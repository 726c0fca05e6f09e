/** Projects of Python: how their packages are installed, and what starts them. */
import type { SourceFacts } from "./facts.ts"

/** Tools of this are fetched beside the app, and are not left in it. */
const tool = (name: string, wanted: string, call: string) =>
  `python3 -m venv /tmp/${name}\n/tmp/${name}/bin/pip install --quiet '${wanted}'\n/tmp/${name}/bin/${name} ${call}`
const ownFolder = "python3 -m venv --clear .venv"

export const isPython = (names: ReadonlySet<string>): boolean =>
  ["requirements.txt", "pyproject.toml", "manage.py", ...mainFiles].some((name) => names.has(name))

/** Into `.venv` beside the files. Undefined: nothing is needed. */
export const installOfPython = (names: ReadonlySet<string>): string | undefined => {
  if (names.has("uv.lock")) return tool("uv", "uv<1", "sync --frozen --no-dev")
  if (names.has("poetry.lock"))
    return tool("poetry", "poetry>=2,<3", "install --only main --no-root --no-interaction")
  if (names.has("requirements.txt")) return `${ownFolder}\n.venv/bin/pip install -r requirements.txt`
  return names.has("pyproject.toml") ? `${ownFolder}\n.venv/bin/pip install .` : undefined
}

const mainFiles = ["main.py", "app.py", "server.py"]

/** Undefined: nothing says it. */
export const startOfPython = (facts: SourceFacts, inside: (name: string) => string): string | undefined => {
  const has = (name: string) => facts.folders.get(inside(""))?.has(name) === true
  const text = ["requirements.txt", "pyproject.toml"]
    .map((name) => facts.texts.get(inside(name)) ?? "")
    .join("\n")
  const needs = (name: string) => new RegExp(`(^|["'\\s,])${name}(?=$|["'\\s,;<>=~!\\[])`, "im").test(text)
  const address = '0.0.0.0:"$PORT"'
  if (has("manage.py")) {
    const site = [...(facts.folders.get(inside("")) ?? [])].find(
      (name) => /^\w+$/.test(name) && facts.folders.get(inside(name))?.has("wsgi.py") === true
    )
    return site !== undefined && needs("gunicorn")
      ? `exec gunicorn ${site}.wsgi --bind ${address}`
      : undefined
  }
  const main = mainFiles.find(has)
  if (main === undefined) return undefined
  const module = main.replace(/\.py$/, "")
  if ((needs("fastapi") || needs("starlette")) && /uvicorn|fastapi\[/i.test(text))
    return `exec uvicorn ${module}:app --host 0.0.0.0 --port "$PORT"`
  if (needs("flask") && needs("gunicorn")) return `exec gunicorn ${module}:app --bind ${address}`
  if (needs("flask")) return `exec flask --app ${module} run --host 0.0.0.0 --port "$PORT"`
  return `exec python3 ${main}`
}

/** `requires-python` of pyproject.toml (PEP 621), or what Poetry says of it. */
export const requiredPython = (text: string | undefined): string | undefined =>
  /^\s*(?:requires-python|python)\s*=\s*["']([^"'\n]+)["']/m.exec(text ?? "")?.[1]
