"""LayerNorm, forward and backward: reference, arithmetic models, statistics, emulation, forensics."""
