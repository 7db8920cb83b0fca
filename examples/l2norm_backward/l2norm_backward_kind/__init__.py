"""The gradients of the L2 norm: dx = r (P - x^ S) and dgamma = sum of dy x^, over the rows.

r = 1/sqrt(sum(x^2) + epsilon), x^ = x r, P = dy gamma and S = sum(P x^).
"""
