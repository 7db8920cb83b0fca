"""The kernels that GoNoGo ships: a short file each. Nothing else in the product has formulas."""
