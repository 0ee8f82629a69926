"""Decoders that generate token by token over the devices of a plan."""
