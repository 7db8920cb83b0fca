"""LayerNorm: reference, arithmetic models, statistics, emulation and forensics of both passes."""
