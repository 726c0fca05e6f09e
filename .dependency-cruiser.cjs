/**
 * Which part may import which: arrows point down only, and no files import each other in a circle (docs/architecture.md).
 * What is loaded by `import()` when it is needed does not count: so `src/features.ts` can name what runs.
 */
/** Every other folder of `src` is a feature. */
const features = "^src/(?!(access|api|cli|engine|infra|loops|outbound|store)/)[^/]+/"
/** Where processes and the whole API are put together. They alone know all features. */
const composition =
  "^src/(main|features|feature)[.]ts$|^src/api/(server|definition/api)[.]ts$|^src/cli/(commands|up|down|admin|local-store)[.]ts$"
const static = { dependencyTypesNot: ["dynamic-import"] }

const below = (name, folder, above) => ({
  name,
  severity: "error",
  from: { path: folder, pathNot: composition },
  to: { path: above, ...static }
})

module.exports = {
  forbidden: [
    {
      name: "no-circles",
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["dynamic-import"] } }
    },
    below("schemas-know-nothing", "^schemas/", "^(src|reconcilers)/"),
    below(
      "store-is-below",
      "^src/store/",
      `^src/(loops|infra|outbound|access|api|cli)/|^reconcilers/|${features}`
    ),
    below(
      "engine-is-below",
      "^src/engine/",
      `^src/(store|loops|infra|outbound|access|api|cli)/|^reconcilers/|${features}`
    ),
    below(
      "loops-are-below",
      "^src/loops/",
      `^src/(infra|outbound|access|api|cli)/|^reconcilers/|${features}`
    ),
    below("infra-is-below", "^src/infra/", `^src/(outbound|access|api|cli)/|^reconcilers/|${features}`),
    below("outbound-is-below", "^src/outbound/", `^src/(access|api|cli)/|^reconcilers/|${features}`),
    below("access-is-below", "^src/access/", `^src/(api|cli)/|^reconcilers/|${features}`),
    below("api-knows-no-feature", "^src/api/", `^src/cli/|^reconcilers/|${features}`),
    below("cli-knows-no-feature", "^src/cli/", `^reconcilers/|${features}`),
    {
      name: "definitions-load-in-a-browser",
      severity: "error",
      from: { path: "^schemas/|^src/api/definition/|^src/[a-z-]+/(api|feature)[.]ts$" },
      to: { dependencyTypes: ["core"], ...static }
    },
    {
      name: "tests-are-not-imported",
      severity: "error",
      from: { path: "^(src|schemas|reconcilers)/" },
      to: { path: "^(test|bench)/" }
    }
  ],
  options: {
    parser: "swc",
    tsPreCompilationDeps: true,
    exclude: { path: "node_modules" },
    enhancedResolveOptions: { extensions: [".ts", ".mjs"], conditionNames: ["import", "node"] }
  }
}
