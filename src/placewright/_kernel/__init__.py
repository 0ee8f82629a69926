"""Compiled loops: plain arrays in, plain arrays out. With ``NUMBA_DISABLE_JIT=1`` they run as ordinary Python."""
