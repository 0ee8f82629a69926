"""The processes of a plan stay up and answer requests."""
