"""RMSNorm, forward: y = gamma x rstd with rstd = 1/sqrt(mean(x^2) + epsilon)."""
