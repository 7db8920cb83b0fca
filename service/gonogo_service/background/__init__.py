"""The background process: dispatcher, reaper, assessments, scheduler, delivery, ..."""
