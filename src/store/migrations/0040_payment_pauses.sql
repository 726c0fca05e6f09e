-- What a connection waits for: a key that works, or the right to make its webhook endpoint.
alter table payment_connection
  -- No event of it is worked on before: its key was refused a moment ago.
  add column parked_until timestamptz,
  -- Fingerprint of a key that may see webhook endpoints and not make them, and when that was seen.
  add column endpoint_refused_key text,
  add column endpoint_refused_at timestamptz;
-- The index payment_event_next is of no use any more; the release after this one drops it.
