-- Deployments that are built: why that failed.
alter table deployment
  drop constraint deployment_error_code_check,
  add constraint deployment_error_code_check check (error_code in (
    'image_pull_failed', 'image_not_found', 'build_failed', 'build_timed_out', 'build_unavailable', 'never_healthy',
    'timed_out')) not valid;
