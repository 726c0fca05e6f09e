/** Prompts: what a person may ask an agent to do here, spelled out for the agent. */

interface Prompt {
  readonly title: string
  readonly description: string
  readonly argument: { readonly name: string; readonly description: string }
  readonly text: (argument: string | undefined) => string
}

export const prompts: Readonly<Record<string, Prompt>> = {
  review_plan: {
    title: "Review a plan",
    description: "What a manifest would change, the risky changes first, without applying it",
    argument: { name: "manifest", description: "The manifest, as YAML or JSON; the one at hand otherwise" },
    text: (manifest) =>
      [
        "Review what this manifest would change. Apply nothing.",
        "1. Run manifest.plan with the tool execute; its body is the manifest.",
        "2. Tell what is deleted or replaced, and what data that loses; then what else changes; count what stays.",
        "3. Name every blocker and fault with its line, and how to mend it.",
        "4. End with one sentence: whether you would apply it, and what to decide first.",
        manifest === undefined
          ? "The manifest is the one that we talk about; ask me for it if there is none."
          : `The manifest:\n\n${manifest}`
      ].join("\n")
  },
  why_not_ready: {
    title: "Why is it not ready?",
    description: "Finds what keeps resources from being ready, and what would help",
    argument: {
      name: "resource",
      description: "Its address (project/environment/kind/name) or its id; whatever is not ready otherwise"
    },
    text: (resource) =>
      [
        `Find out why ${resource ?? "some resources"} ${resource === undefined ? "are" : "is"} not ready. Change nothing.`,
        "1. Run resources.list with the tool execute, query ready false, to find it and its uid.",
        "2. Run resources.get: its conditions, differences and lastError say what it waits for.",
        "3. Run resources.events: what was tried, how often, and since when.",
        "4. What it waits for may be another resource: look at that one in the same way.",
        "5. Tell the cause in plain words, what mends it, and which operation that is. Ask before you run it."
      ].join("\n")
  }
}
