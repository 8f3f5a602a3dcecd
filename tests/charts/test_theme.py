"""The palette: text is legible on its boxes, curves on light and dark paper, by all eyes."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import commsim.charts
from commsim.charts.theme import FAMILIES, GRID, IDLE, INK, LINES, MUTED, PAPER
from commsim.charts.topology.figure import KIND_COLOURS, USE_STEPS

PAGE = (Path(commsim.charts.__file__).parent / "page.js").read_text()
ON_DARK: dict[str, str] = dict(re.findall(r'"(#[0-9A-F]{6})": "(#[0-9A-F]{6})"', PAGE))

# Linear RGB as eyes without one kind of cone see it: Machado, Oliveira and Fernandes 2009,
# "A Physiologically-based Model for Simulation of Color Vision Deficiency", severity 1.
MACHADO = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
               (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
               (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
               (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """Return the contrast of WCAG 2."""
    light, dark = sorted((float(TO_XYZ[1] @ linear(c)) for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def on_dark(colour: str) -> str:
    return ON_DARK.get(colour, colour)


def test_numbers_are_legible_on_their_boxes() -> None:
    for family in FAMILIES:
        numbered = family.label in ("forward", "backward", "weight grad", "compute")
        assert contrast(family.fill, family.ink) >= (4.5 if numbered else 3.5), family.label


def test_text_is_legible_on_light_and_dark_paper() -> None:
    for ink, ground in ((INK, PAPER), (MUTED, PAPER), (INK, IDLE)):
        assert contrast(ink, ground) >= 4.5
        assert contrast(on_dark(ink), on_dark(ground)) >= 4.5


@pytest.mark.parametrize("colour", LINES)
def test_curves_stand_out_on_light_and_dark_paper(colour: str) -> None:
    assert contrast(colour, PAPER) >= 3
    assert contrast(on_dark(colour), on_dark(PAPER)) >= 3


@pytest.mark.parametrize("colour", KIND_COLOURS.values())
def test_links_stand_out_on_the_frames_of_nodes(colour: str) -> None:
    assert contrast(colour, IDLE) >= 2.7
    assert contrast(on_dark(colour), on_dark(IDLE)) >= 2.7


@pytest.mark.parametrize("eyes", list(MACHADO))
def test_curves_stay_apart_for_all_eyes(eyes: str) -> None:
    seen = {colour: lab(np.array(MACHADO[eyes]) @ linear(colour)) for colour in LINES[:7]}
    for a, b in combinations(seen, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 9, (a, b)


def test_the_fuller_a_link_the_farther_from_the_paper() -> None:
    used = [colour for _, _, colour in USE_STEPS]
    light = [contrast(colour, IDLE) for colour in used]
    dark = [contrast(on_dark(colour), on_dark(IDLE)) for colour in used]
    assert light == sorted(light)
    assert dark == sorted(dark)
    assert min(light[1:]) > 2.5
    assert min(dark[1:]) > 2.5


def test_the_grid_stays_behind() -> None:
    assert contrast(GRID, PAPER) < 1.5
    assert contrast(on_dark(GRID), on_dark(PAPER)) < 1.5
