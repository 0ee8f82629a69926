"""What is here: cores, GPUs, and the links between workers, measured."""
