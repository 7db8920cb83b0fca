"""The background process: dispatcher, ingest, reaper, assessments, scheduler, delivery, ..."""
