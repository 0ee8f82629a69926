"""placewright: decide where each operator of a neural network runs, prove how good that is, and run it."""
