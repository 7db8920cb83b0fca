"""Mends of the simulator, where it stops at what a Wormhole does.

`make wormhole-sim` installs this as sitecustomize.py, which Python imports when it starts. Sources:
the RISC-V manual (M extension), and Tenstorrent's ISA documentation (SFPLOAD, packers).
"""

from __future__ import annotations

import sys
from typing import Any

SERVER = "framework.sim.wormhole"


def mend_division() -> None:
    """Let a division by 0 give all ones, and its remainder the dividend."""
    from framework.pe.rv.isa.m_isa import RV_M_ISA
    from framework.util.conversion import conv_to_bytes

    run = RV_M_ISA.run.__func__

    def mended(cls: Any, registers: Any, memory: Any, snoop: Any, instr: Any = None) -> Any:
        instr = cls.fetch(registers, memory) if instr is None else instr
        try:
            return run(cls, registers, memory, snoop, instr)
        except ZeroDivisionError:
            dividend = registers[instr >> 15 & 31].read_uint()
            result = dividend if instr >> 13 & 1 else 0xFFFFFFFF
            registers[instr >> 7 & 31].write(conv_to_bytes(result))
            return True

    RV_M_ISA.run = classmethod(mended)


def mend_load() -> None:
    """Let the SFPU load 16 bits, and 0 in the other half."""
    from framework.pe.tensix.backends.vector import VectorUnit

    load = VectorUnit.handle_sfpload
    halves = {
        VectorUnit.MOD0_FMT_UINT16: VectorUnit.MOD0_FMT_LO16_ONLY,
        VectorUnit.MOD0_FMT_LO16: VectorUnit.MOD0_FMT_LO16_ONLY,
        VectorUnit.MOD0_FMT_HI16: VectorUnit.MOD0_FMT_HI16_ONLY,
    }

    def mended(self: Any, instruction: Any, thread: Any, args: Any) -> None:
        half = halves.get(args["instr_mod0"])
        if half is not None:
            for lane in range(32):
                if self.isLaneEnabled(lane):
                    self.lregs[args["lreg_ind"]][lane] = 0
            args = {**args, "instr_mod0": half}
        load(self, instruction, thread, args)

    VectorUnit.handle_sfpload = mended


class _Sums:
    """A memory to whose values a packer adds: fp32, or the upper halves of it."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def write(self, address: int, data: bytes) -> None:
        import numpy as np

        missing = bytes(4 - len(data))
        parts = (bytes(self.memory.read(address, len(data))), bytes(data))
        first, second = (np.frombuffer(missing + part, np.float32) for part in parts)
        total = (first + second).view(np.uint32)
        if missing:  # to nearest even
            total = total + 0x7FFF + (total >> 16 & 1)
        self.memory.write(address, total.astype(np.uint32).tobytes()[len(missing) :])


def mend_packer() -> None:
    """Let a packer add to what is in L1."""
    from framework.pe.tensix.backends.packer import PackerUnit

    pack = PackerUnit.handle_pacr

    def mended(self: Any, instruction: Any, thread: Any, args: Any) -> None:
        state = self.backend.getThreadConfigValue(thread, "CFG_STATE_ID_StateID")
        memory = self.backend.addressable_memory
        if self.getConfigValue(state, "THCON_SEC0_REG1_Pack_L1_Acc"):
            self.backend.addressable_memory = _Sums(memory)
        try:
            pack(self, instruction, thread, args)
        finally:
            self.backend.addressable_memory = memory

    PackerUnit.handle_pacr = mended


if SERVER in sys.orig_argv:
    mend_division()
    mend_load()
    mend_packer()
