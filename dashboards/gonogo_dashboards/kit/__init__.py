"""What every page uses: addresses, words, assets, routes, rows of lists, and the base templates."""
