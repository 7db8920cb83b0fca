"""The role that steps bisections, and what it says of them."""
