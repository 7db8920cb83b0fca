"""The gauge: measure a test with known-right (GO) and known-wrong (NO-GO) kernels, and say what
tolerance it should have.

`kernels` are the parts and `measure` makes a row of one run (arrays in, stored numbers out);
`report` reads rows only, with `comparators`, `windows`, `rates` and `gates`, so that a stored gauge
is judged anew without running anything. `elsewhere` are other inputs that are tried where no
tolerance works. `plan` names the parts for a service that computes no kernel, `line` is the command
that measures again.
"""
