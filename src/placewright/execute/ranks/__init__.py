"""One process for each device of a plan, over torch.distributed: one sample after the other."""
