"""Jobs over HTTP: submit, list, cancel, results, events, artifacts, imports."""
