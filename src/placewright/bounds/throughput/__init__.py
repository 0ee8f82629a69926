"""Proven lower bounds for the throughput: one file a bound."""
