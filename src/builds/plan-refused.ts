import * as Schema from "effect/Schema"

/** There is no plan by which this source can be built. The code is for programs, the message for people. */
export class PlanRefused extends Schema.TaggedError<PlanRefused>()("PlanRefused", {
  code: Schema.Literals([
    "no_build_plan",
    "bad_settings",
    "bad_package_json",
    "several_lockfiles",
    "package_manager_unsupported",
    "no_start_command",
    "dockerfile_unsupported"
  ]),
  message: Schema.String
}) {}
