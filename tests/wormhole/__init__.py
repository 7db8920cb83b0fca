"""A simulated Wormhole that runs the real ttnn kernels on any x86-64 Linux machine.

`make wormhole-sim` sets it up (docs/wormhole.md).

Not in the wheel: a device host has a card.
"""
