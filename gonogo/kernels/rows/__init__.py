"""Emulation and forensics shared by kernels that normalize rows: RMSNorm and group norm."""
