"""Lower bounds on the max-load: one file a bound."""
