"""Lower bounds on the makespan: one file a bound."""
