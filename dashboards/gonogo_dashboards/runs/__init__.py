"""The pages of runs and schedules."""
