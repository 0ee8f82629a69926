"""Plans of ONNX networks: a worker process for each device, over shared memory."""
