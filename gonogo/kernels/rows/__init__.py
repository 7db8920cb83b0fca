"""Emulation and forensics shared by kernels that normalize rows (RMSNorm, group norm)."""
