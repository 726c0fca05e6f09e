/** An image with this machine's own Python, without what is installed beside it. */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import type { Engine } from "#test/setup/containers.ts"
import { baseImage } from "./world.ts"

export const pythonImage = "localhost/test/python:1"

const told = (program: string, ...args: ReadonlyArray<string>) =>
  spawnSync(program, args, { encoding: "utf8" }).stdout.trim()

/** On top of the image for Node, whose shell and libraries it uses. Answers its version, such as `3.11`. */
export const makePythonBase = ({ folder, podman }: Engine): string => {
  const [version = "", prefix = ""] = told(
    "python3",
    "-c",
    "import sys; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"
  ).split(" ")
  const root = path.join(folder, "python")
  const own = path.join(root, "usr/local")
  const library = path.join(prefix, "lib", `python${version}`)
  fs.mkdirSync(path.join(own, "bin"), { recursive: true })
  const program = fs.realpathSync(path.join(prefix, "bin", `python${version}`))
  fs.copyFileSync(program, path.join(own, "bin/python3"))
  fs.cpSync(library, path.join(own, "lib", `python${version}`), {
    recursive: true,
    filter: (from) =>
      !/\/(site-packages|dist-packages|test|__pycache__|idlelib|config-[^/]*)(\/|$)/.test(
        from.slice(library.length)
      )
  })
  const modules = fs
    .readdirSync(path.join(library, "lib-dynload"))
    .map((name) => path.join(library, "lib-dynload", name))
  for (const [file] of told("ldd", program, ...modules).matchAll(/\/\S*\.so[.\d]*(?= \()/g)) {
    const to = path.join(root, file)
    if (fs.existsSync(to)) continue
    fs.mkdirSync(path.dirname(to), { recursive: true })
    fs.copyFileSync(file, to)
  }
  fs.writeFileSync(
    path.join(root, "Containerfile"),
    `FROM ${baseImage}\nCOPY . /\nENV PATH=/usr/local/bin:/bin:/usr/bin\n`
  )
  podman("build", "-q", "--network", "none", "-t", pythonImage, root)
  fs.rmSync(root, { recursive: true })
  return version
}
