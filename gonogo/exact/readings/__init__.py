"""The wrong term, tile and factor that explain an exact test's outputs, in words.

reading.py    a reading, and how its words are made
tiles.py      sums over tiles, and the sets of tiles that a kernel may leave out
columns.py    wrong gammas and betas
moments.py    wrong means, variances and factors of rows
forward.py    the best reading of a forward output
"""
