"""The network of a node, by the words of a published row."""

from __future__ import annotations

import re

__all__ = ["node_network", "node_nics"]

NODE_NETWORK = {
    "V100": 50e9, "A100": 100e9, "H100": 400e9, "H200": 400e9, "H800": 400e9, "B200": 400e9,
    "B300": 800e9, "GB200": 200e9, "GB300": 400e9,
}  # fmt: skip
"""Bytes/s of a node, per direction, where a row does not say: the usual NICs of the GPU's time."""


def node_network(text: str, gpu: str) -> float:
    """Return a node's network bandwidth in bytes/s from words like "8xHDR200 (200GB/s/node)"."""
    if match := re.search(r"(\d{2,4})\s*G\b[^,;()]*/\s*GPU", text):
        return float(match[1]) * 1e9 / 8 * _gpus_per_node(text)
    text = re.sub(r"\d+\s*x\s*G?[ABHV]\d{2,3}\b", "", text)  # so many GPUs, no NICs
    patterns = (
        (r"([\d.]+)\s*GB/s\s*(?:/|per )\s*node", 1e9),
        (r"([\d.]+)\s*Gb(?:/s|ps)\s*(?:/|per |node-)\s*node", 1e9 / 8),
    )
    for pattern, unit in patterns:
        if match := re.search(pattern, text):
            return float(match[1]) * unit
    if match := re.search(r"(\d+)\s*x\s*[A-Za-z \-]*?(\d{2,4})\s*(?:G|\b)", text):
        return int(match[1]) * float(match[2]) * 1e9 / 8
    return next((rate for name, rate in NODE_NETWORK.items() if gpu.startswith(name)), 400e9)


def _gpus_per_node(text: str) -> int:
    match = re.search(r"(\d+)\s*x\s*G?[ABHV]\d{2,3}\b", text)
    return int(match[1]) if match else 8


def node_nics(text: str) -> int:
    """Return the NICs of a node from words like "4xHDR200"; 0 if they are not counted."""
    match = re.match(r"\s*(\d+)\s*x(?!\s*G?[ABHV]\d{2,3}\b)", text)
    return int(match[1]) if match else 0
