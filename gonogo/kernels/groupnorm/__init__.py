"""Group norm, forward: LayerNorm over each sample's groups of channels."""
