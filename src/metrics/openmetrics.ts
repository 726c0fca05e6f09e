/** Measurements as text for Prometheus and others: OpenMetrics 1.0.0 (prometheus/OpenMetrics, specification). */
import { type Measurement, measurementNames, measurements } from "#schemas/signal.ts"
import type { Measured } from "./MetricHistory.ts"

export const contentType = "application/openmetrics-text; version=1.0.0; charset=utf-8"

/** What is older is not what is so now. A series that ends is how Prometheus learns of that. */
export const staleSeconds = 90

/** `truncated`: there are more resources than the text tells of. */
export const openMetrics = (resources: ReadonlyArray<Measured>, truncated: boolean): string => {
  const fresh = resources.filter(({ ageSeconds }) => ageSeconds <= staleSeconds)
  const families = measurementNames.flatMap((name) => {
    const samples = fresh.flatMap((resource) => {
      const value = resource.values[name]
      return value === undefined ? [] : [`${metricName(name)}${labels(resource)} ${value}`]
    })
    return samples.length === 0 ? [] : [...head(metricName(name), helpOf(name)), ...samples]
  })
  const cut = head("svc_export_truncated", "Whether there are more resources than are told of here")
  return `${[...families, ...cut, `svc_export_truncated ${truncated ? 1 : 0}`, "# EOF"].join("\n")}\n`
}

const head = (name: string, help: string) => [`# TYPE ${name} gauge`, `# HELP ${name} ${escaped(help)}`]

export const metricName = (name: Measurement): string => `svc_${name.replaceAll(".", "_")}`

const helpOf = (name: Measurement) => `${measurements[name].meaning} (${measurements[name].unit})`

const labels = ({ project, environment, kind, name }: Measured): string => {
  const pairs = Object.entries({ project: project ?? "", environment: environment ?? "", kind, name })
  return `{${pairs.map(([label, value]) => `${label}="${escaped(value)}"`).join(",")}}`
}

const escaped = (text: string): string =>
  text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n").replaceAll('"', '\\"')
