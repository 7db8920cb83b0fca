"""Submissions from every source: the bodies, and the use cases from a body to a stored job.

People, schedules, rules and bisections submit by `jobs.submit`, `suites.submit`,
`suites.submit_stored` and `gauges.submit`, and so share every check. Each writes in the caller's
transaction. The caller notifies the dispatcher after the commit.
"""
