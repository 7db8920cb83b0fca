"""The emulated dataflow of forward kernels that normalize rows, for all kinds.

`machine` holds the numerics of a test, and `logic` the switches of a build. `forward` is the
dataflow over `steps`, and `loops` its compiled version. gonogo.numerics.tensix has the hardware
primitives. `spoil` has the faults that no dataflow explains.
"""
