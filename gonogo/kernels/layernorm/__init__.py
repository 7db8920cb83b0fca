"""LayerNorm: reference, arithmetic models, statistics and forensics of both passes."""
