"""NCCL: what it chooses on a machine, and how long that takes."""
