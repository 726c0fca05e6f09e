/** Measurements as text for Prometheus and others: OpenMetrics 1.0.0 (prometheus/OpenMetrics, specification). */
import { type Measurement, measurementNames, measurements } from "#schemas/signal.ts"
import type { Measured } from "./MetricHistory.ts"

export const contentType = "application/openmetrics-text; version=1.0.0; charset=utf-8"

/**
 * `resources` have what is measured now alone: a series that ends is how Prometheus learns that it is not any more.
 * `truncated`: there are more of them than the text tells of.
 */
export const openMetrics = (resources: ReadonlyArray<Measured>, truncated: boolean): string => {
  const families = measurementNames.flatMap((name) => {
    const samples = resources.flatMap((resource) => {
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
