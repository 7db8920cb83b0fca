"""The role that steps bisections, and the text of their results."""
