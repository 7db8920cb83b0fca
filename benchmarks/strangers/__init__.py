"""Strangers: LayerNorm kernels, right and wrong, by someone who had not seen the forensics."""
