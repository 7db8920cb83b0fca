"""The wrong term, tile and factor that explain an exact test's outputs, in words.

reading.py    a reading, and how its words are made
elements.py   the share of wrong elements that a hypothesis explains
place.py      tiles, NaN, and rows that repeat others
tiles.py      sums over tiles, and the sets of tiles that a kernel may leave out
lags.py       other rows, from which a stale value may come
columns.py    wrong gammas and betas
moments.py    wrong means, variances and factors of rows
forward.py    the best reading of a forward output
sums.py       wrong s1, s2 and factors of a gradient
statistics.py wrong means, variances and epsilons of a backward kernel
gradients.py  the best reading of dx
down.py       the best reading of dgamma and dbeta
"""
