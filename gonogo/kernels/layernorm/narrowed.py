"""Some columns of the sums over all rows, with the statistics of whole rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gonogo.kernels.layernorm.replay import ColumnGradient


def narrowed(graph: ColumnGradient, most: int) -> tuple[ColumnGradient, slice]:
    """Return the graph of some of its columns, with the statistics of whole rows; which ones.

    most: the largest number of terms, of all columns together.
    """
    rows = graph.rows
    count, features = rows.x.shape
    column_count = max(1, most // count)
    if column_count >= features:
        return graph, slice(None)
    mean, rstd = rows.mean, rows.rstd
    if rstd is None and rows.centered:
        mean = rows.x.mean(axis=1, keepdims=True, dtype=np.float64)
        variance = rows.x.var(axis=1, keepdims=True, dtype=np.float64)
        rstd = rows.exact_rstd(variance)
    elif rstd is None:
        mean_square = np.square(rows.x, dtype=np.float64).mean(axis=1, keepdims=True)
        rstd = rows.exact_rstd(mean_square)
    columns = slice(None, None, -(-features // column_count))
    narrow = replace(
        rows,
        x=np.asarray(rows.x[:, columns], np.float64),
        dy=np.asarray(rows.dy[:, columns], np.float64),
        gamma=rows.gamma[:, columns],
        mean=mean,
        rstd=rstd,
    )
    return replace(graph, rows=narrow), columns
