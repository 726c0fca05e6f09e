-- concurrently
-- Which runs failed of late, among all that ended: asked every 15 seconds for measurements.
create index concurrently cron_run_failed on cron_run (finished_at) where status in ('failed', 'timed_out');
