"""The L2 norm over the last dimension: y = gamma x r with r = 1/sqrt(sum(x^2) + epsilon)."""
