"""Exact inputs: right kernels agree on them to the bit, whatever their arithmetic.

draws.py      random words of a seed
integers.py   rows of small integers whose sum and sum of squares are exact
scales.py     the layout of a test's rows: kinds, scales, means
vernier.py    gamma and beta, whose sums lie at chosen distances from a tie
forward.py    x, gamma and beta of the forward kernels
backward.py   x, gamma and dy of the backward kernel
inputs.py     the tensors of a seed, for every kernel
cells.py      the distance of a value from the cell that an output stands for
judge.py      which outputs are wrong, and the explanation
sensors.py    the factor and offset that a row shows
readings/     the wrong term, tile and factor, in words
"""
