"""The gauge: measure a test with right kernels and mutants, and advise a tolerance.

A mutant is a kernel that is known to be wrong. `kernels` defines the parts and `measure` makes a
row from one run (arrays in, stored numbers out). `report` reads rows only, with `comparators`,
`windows` and `gates`, so a stored gauge can be judged again without running anything. `elsewhere`
has other inputs to try if no tolerance works.
"""
