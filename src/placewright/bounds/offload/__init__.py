"""Lower bounds on the offload latency: one file a bound."""
