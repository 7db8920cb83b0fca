"""The pages: read models, chart options, templates, and the bundle that runs in the browser."""
