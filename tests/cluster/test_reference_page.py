"""The page on clusters names every preset and every field there is."""

from __future__ import annotations

import re
from typing import get_args

import msgspec
from helpers.paths import ROOT

from commsim.cluster.nodes import node
from commsim.cluster.presets import preset_names, preset_text
from commsim.sections import Section

PAGE = (ROOT / "docs" / "reference" / "clusters.md").read_text("utf-8")


def test_every_preset_stands_in_the_table_as_its_file_says():
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", PAGE.split("## Presets")[1], re.MULTILINE)
    assert rows == [
        (name, preset_text(name).splitlines()[0].lstrip("# ")) for name in preset_names()
    ]


def test_every_field_of_a_node_is_named():
    parts: dict[str, type[Section]] = {
        "gpu": node.GpuSection, "nvlink": node.NvlinkSection, "c2c": node.C2cSection,
        "pcie": node.PcieSection, "cpu": node.CpuSection, "nic": node.NicSection,
        "host": node.HostSection, "power": node.PowerSection,
    }  # fmt: skip
    for part, section in parts.items():
        (row,) = re.findall(rf"^\| `{part}` \| (.+) \|$", PAGE, re.MULTILINE)
        fields = {field.name for field in msgspec.structs.fields(section)} - {"sources"}
        named = set(re.findall(r"`(\w+)`", row))
        assert fields <= named, (part, fields - named)


def test_every_transport_is_named():
    for transport in get_args(node.Transport):
        assert transport in ("efa_v2", "efa_v3") or f"`{transport}`" in PAGE
