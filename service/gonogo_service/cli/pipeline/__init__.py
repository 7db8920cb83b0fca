"""`gonogo ci`: the command of a pipeline, with its reports for GitHub and GitLab."""
