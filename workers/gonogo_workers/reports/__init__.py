"""Reports of existing test programs: their output, and the arrays that they handed over."""
