"""The pages of jobs: one job, the list, and the form that submits one."""
