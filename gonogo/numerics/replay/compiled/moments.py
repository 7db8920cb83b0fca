"""Mean and variance of rows, as a program that stores nothing computes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit
from gonogo.numerics.replay.bits import inexact, rounding
from gonogo.numerics.replay.compiled.sums import (
    NOISE,
    SLOPE,
    U,
    add_mean,
    exact_mean,
    fold,
    scratch,
    value_of,
)

MEAN, CENTERED, SQUARES = range(3)
LANES = 32
"""Running totals of the squares of a row's elements."""
SUMS = 3
"""Sums of a row: of x, of (x - mean)^2, and of x^2 where the variance is E[x^2] - mean^2."""


@jit
def add_moments(
    start: int, stop: int, x: Any, centered: bool, squares: bool, order: int, facts: Any
) -> None:
    """Put the sums of rows start..stop of x (rows, N) into `facts` (rows, SUMS, FACTS)."""
    n = x.shape[1]
    memory, lanes = scratch(n), np.zeros(8)
    terms, noise, slope = np.empty(n), np.empty(n), np.empty(n)
    for i in range(start, stop):
        row = x[i]
        if centered:
            for j in range(n):
                terms[j] = row[j]
            add_mean(terms, n, order, memory, facts[i, MEAN])
            mean = value_of(facts[i, MEAN])
            for j in range(n):
                difference = row[j] - mean
                square = difference * difference
                terms[j] = square
                noise[j] = 2.0 * (rounding(difference) * square) + rounding(square)
                slope[j] = 2.0 * difference
            facts[i, CENTERED, SLOPE] = exact_mean(slope, n, lanes)
        if squares or not centered:
            place = SQUARES if centered else CENTERED
            if centered:
                add_mean(terms, n, order, memory, facts[i, CENTERED])
                facts[i, CENTERED, NOISE] = exact_mean(noise, n, lanes) / n
            for j in range(n):
                square = np.float64(row[j]) * np.float64(row[j])
                terms[j] = square
                noise[j] = inexact(square)
        else:
            place = CENTERED
        add_mean(terms, n, order, memory, facts[i, place])
        facts[i, place, NOISE] = exact_mean(noise, n, lanes) / n


@jit
def add_sizes(start: int, stop: int, x: Any, sizes: Any) -> None:
    """Put the root mean square of rows start..stop of x (rows, N) into `sizes` (rows, 1)."""
    n = x.shape[1]
    full = n - n % LANES
    lanes = np.zeros(LANES)
    for i in range(start, stop):
        for first in range(0, full, LANES):
            for j in range(LANES):
                value = np.float64(x[i, U(first) + U(j)])
                lanes[j] += value * value
        for j in range(full, n):
            value = np.float64(x[i, j])
            lanes[j - full] += value * value
        sizes[i, 0] = np.sqrt(fold(lanes, LANES) / n)
