"""Reports of existing test programs: what they printed, and the arrays that they handed over."""
