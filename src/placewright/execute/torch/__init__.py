"""PyTorch networks taken apart by device, and run part by part in one process."""
