/** How projects and environments look to callers. */
import { Environment } from "#schemas/environment.ts"
import { implicitEnvironments } from "#schemas/names.ts"
import { Project } from "#schemas/project.ts"
import { decodeWith } from "#src/api/views.ts"
import type { ListedRecord, ResourceRecord } from "#src/store/records.ts"

const decodeProject = decodeWith(Project)

export const projectView = (record: ListedRecord) => {
  const { spec } = decodeProject(record)
  return {
    id: record.uid,
    name: spec.name,
    slug: record.name,
    runtimeClass: spec.runtimeClass,
    region: spec.region ?? null,
    git: spec.git ?? null,
    previewData: spec.previewData ?? ("forbidden" as const),
    createdAt: record.createdAt.toISOString(),
    updatedAt: record.updatedAt.toISOString()
  }
}

const implicit: ReadonlySet<string> = new Set(implicitEnvironments)
/** Every project has it. */
export const isImplicit = ({ name }: Pick<ResourceRecord, "name">): boolean => implicit.has(name)

const decodeEnvironment = decodeWith(Environment)
export const environmentView = (record: ListedRecord) => {
  const { spec, status } = decodeEnvironment(record)
  return {
    id: record.uid,
    slug: record.name,
    implicit: isImplicit(record),
    origin: spec.origin ?? null,
    address: status?.address ?? null,
    createdAt: record.createdAt.toISOString()
  }
}
