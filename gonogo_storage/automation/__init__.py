"""Jobs that no person submits: suites, schedules, CI deliveries, and bisections."""
