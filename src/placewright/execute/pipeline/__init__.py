"""Many micro-batches in flight through the processes of a plan, forward or training."""
