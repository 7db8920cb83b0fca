"""What submits jobs without a person: suites, schedules, CI deliveries, and bisections."""
