"""Sphinx's settings: the manual that `make docs` builds from these pages."""

project = "GoNoGo"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "GoNoGo"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False
exclude_patterns = ["pictures"]
myst_heading_anchors = 4
# `$api` and `$5` are text, not formulas; a page may begin with any level of heading
myst_enable_extensions: list[str] = []
nitpicky = True
