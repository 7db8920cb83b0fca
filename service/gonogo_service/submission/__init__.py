"""What may be submitted, by whatever way it comes: the bodies, and the checks on the way from a
body to what storage creates.
"""
