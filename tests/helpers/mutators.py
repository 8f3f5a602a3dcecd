"""
Mutators that know the structure of what they damage: trees, XML, lines, tables, arrays, words.

Each takes a file's bytes (or words) and a random source, and returns another that its reader's
parser mostly still accepts, so that what is behind the parser is reached.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import re
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import yaml

__all__ = ["MUTATORS", "Mutator", "damaged_words"]

Mutator = Callable[[bytes, Random], bytes]

WILD: tuple[Any, ...] = (
    0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 1e308, -1e308, 1e-320, 0.1,
    float("nan"), float("inf"), True, False, None, "", "x", "0", "-1", "1e400", "9" * 400, "\0",
    "\ud800", "é" * 50, "../../etc/passwd", "<script>alert(1)</script>", "1GiB", "10kbps", "3us",
    [], {}, [[]], [0], {"": 0}, "a,b", ",", "=cmd()", "%s%n", "nan",
)  # fmt: skip


def bytes_damaged(data: bytes, random: Random) -> bytes:
    """Change some bytes, cut the end off, or put a part in twice."""
    made, way = bytearray(data or b"\0"), random.randrange(3)
    if way == 0:
        for _ in range(random.randint(1, 8)):
            made[random.randrange(len(made))] = random.randrange(256)
    elif way == 1:
        del made[random.randrange(len(made)) :]
    else:
        begin = random.randrange(len(made))
        made[begin:begin] = made[begin : begin + random.randint(1, 40)]
    return bytes(made)


def near(value: Any, random: Random) -> Any:
    """Return what somebody else might have written: a number beside it, another unit or choice."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, 2 * value, value // 2, 3 * value, -value, 0, 1))
    if isinstance(value, float):
        return value * random.choice((0.5, 2.0, 0.999, 1000.0, 0.001, -1.0)) + random.choice((0, 1))
    if not isinstance(value, str):
        return value
    if number := re.search(r"\d+", value):
        new = str(abs(near(int(number[0][:18]), random)))
        return value[: number.start()] + new + value[number.end() :]
    alike = [group for group in CHOICES if value in group]
    return random.choice(random.choice(alike)) if alike else value


CHOICES: tuple[tuple[str, ...], ...] = (
    ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather",
     "scatter", "barrier", "all_to_all_v", "send", "recv", "batch"),
    ("nccl", "gloo", "ideal"),
    ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipe", "naive"),
    ("ring", "tree", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"),
    ("Simple", "LL", "LL128"),
    ("fluid", "steps"),
    ("auto", "on", "off", "none", "full", "selective"),
    ("float", "half", "bf16", "fp16", "fp32", "fp8", "int8", "BFloat16", "Float", "Long", "Int"),
    ("ddp", "fsdp", "zero", "parameter_server"),
    ("fat_tree", "rail_optimized", "rail_only", "torus", "dragonfly", "single_switch"),
    ("dgx-h100", "dgx-a100", "dgx-b200", "gb200-nvl72", "aws-p5", "aws-p4d"),
)  # fmt: skip
"""Words that stand in each other's place: some are refused there, with what is known."""


def _tree(value: Any, random: Random) -> Any:
    """Change one to three places of plain data.

    Half of the time to what another might have written there, so that it is mostly read; else
    drop, double, swap, or put something wild.
    """
    made = copy.deepcopy(value)
    if random.random() < 0.5:
        for _ in range(random.choice((1, 1, 2, 3))):
            leaves = [
                (parent, key)
                for parent, key in _places(made)
                if not isinstance(parent[key], dict | list)
            ]
            if leaves:
                parent, key = random.choice(leaves)
                parent[key] = near(parent[key], random)
        return made
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = _places(made)
        if not places:
            return random.choice(WILD)
        parent, key = random.choice(places)
        way = random.randrange(6)
        if way == 0:
            del parent[key]
        elif way == 1:
            parent[key] = copy.deepcopy(random.choice(WILD))
        elif way == 2 and isinstance(parent, list):
            parent.insert(random.randrange(len(parent) + 1), copy.deepcopy(parent[key]))
        elif way == 3:
            other, name = random.choice(places)
            if name in other if isinstance(other, dict) else name < len(other):
                parent[key] = copy.deepcopy(other[name])
        elif way == 4 and isinstance(parent[key], int | float):
            parent[key] = parent[key] * random.choice((-1, 0, 2, 1e6, 10**15))
        elif isinstance(parent, dict):
            parent[random.choice(("", "x", str(key) + "s"))] = parent[key]
    return made


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left:
        one = left.pop()
        items: Any = ()
        if isinstance(one, dict):
            items = list(one.items())
        elif isinstance(one, list):
            items = list(enumerate(one))
        for key, inner in items[:2000]:
            found.append((one, key))
            left.append(inner)
    return found


def json_damaged(data: bytes, random: Random) -> bytes:
    """Change the tree of a JSON file."""
    return json.dumps(_tree(json.loads(data), random)).encode("utf-8", "surrogatepass")


def yaml_damaged(data: bytes, random: Random) -> bytes:
    """Change the tree of a YAML file."""
    made = _tree(yaml.safe_load(data), random)
    return yaml.safe_dump(made, allow_unicode=True).encode("utf-8", "replace")


def xml_damaged(data: bytes, random: Random) -> bytes:
    """Change the value of an attribute, or leave out or double an element."""
    text = data.decode()
    for _ in range(random.randint(1, 3)):
        values = list(re.finditer(r'(?<==")[^"]*(?=")', text))
        elements = list(re.finditer(r"<[^<>]*/>", text))
        if values and (random.random() < 0.7 or not elements):
            at, new = random.choice(values), random.choice([*_WORDS, random.choice(values)[0]])
            new = str(near(at[0], random)) if random.random() < 0.5 else new
        elif elements:
            at = random.choice(elements)
            new = random.choice(("", at[0] * 2, random.choice(elements)[0]))
        else:
            break
        text = text[: at.start()] + new + text[at.end() :]
    return text.encode("utf-8", "replace")


_WORDS = tuple(str(one).replace('"', "").replace("<", "&lt;") for one in WILD)


def lines_damaged(data: bytes, random: Random) -> bytes:
    """Change a number or a word of a text, or leave out, double or swap lines."""
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(random.randint(1, 3)):
        at, way = random.randrange(len(lines)), random.randrange(5)
        if way == 0:
            lines.insert(at, lines[at])
        elif way == 1 and len(lines) > 1:
            del lines[at]
        elif way == 2:
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            words = list(re.finditer(r"[\w.+-]+", lines[at]))
            if words:
                word = random.choice(words)
                new = random.choice((*_WORDS, word[0] * 2, word[0] + "0"))
                new = near(word[0], random) if random.random() < 0.5 else new
                lines[at] = lines[at][: word.start()] + new + lines[at][word.end() :]
    return "\n".join(lines).encode("utf-8", "replace")


def table_damaged(data: bytes, random: Random) -> bytes:
    """Change, drop or double cells and rows of a CSV file."""
    rows = list(csv.reader(io.StringIO(data.decode())))
    for _ in range(random.randint(1, 4)):
        row = random.choice(rows)
        way = random.randrange(4)
        if way == 0 and row:
            at = random.randrange(len(row))
            near_it = str(near(row[at], random))
            row[at] = random.choice((random.choice(_WORDS), random.choice(row), near_it))
        elif way == 1 and row:
            del row[random.randrange(len(row))]
        elif way == 2:
            rows.insert(random.randrange(len(rows)), list(row))
        else:
            a, b = random.randrange(len(row) or 1), random.randrange(len(row) or 1)
            if row:
                row[a], row[b] = row[b], row[a]
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


_NUMBERS = (0, -1, 1, 2, 255, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63))


def arrays_damaged(data: bytes, random: Random) -> bytes:
    """Change entries, length or type of arrays of an .npz, or its JSON header."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    for _ in range(random.randint(1, 3)):
        name = random.choice(list(arrays))
        values = arrays[name].copy()
        if name == "header" or name.endswith("_header"):
            values = np.frombuffer(json_damaged(values.tobytes(), random), np.uint8)
        elif (way := random.randrange(7)) == 0:
            del arrays[name]
            continue
        elif way == 1:
            values = values[: random.randrange(len(values) + 1)]
        elif way == 2:
            with np.errstate(all="ignore"):
                values = values.astype(random.choice((np.int32, np.float64, np.uint8)))
        elif values.size:
            at = random.randrange(values.size)
            wild: Any = random.choice(_NUMBERS)
            if random.random() < 0.5:
                wild = near(values.reshape(-1)[at].item(), random)
            elif values.dtype.kind == "f":
                wild = random.choice((np.nan, np.inf, -1.0, 1e308, 0.0))
            elif values.dtype.kind == "u":
                wild = random.randrange(256)
            if values.dtype.kind in "iu":
                limits = np.iinfo(values.dtype)
                wild = int(max(min(wild, limits.max), limits.min))
            with np.errstate(all="ignore"):
                values.reshape(-1)[at] = wild
        arrays[name] = values
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, values in arrays.items():
            column = io.BytesIO()
            np.save(column, values, allow_pickle=False)
            archive.writestr(f"{name}.npy", column.getvalue())
    return made.getvalue()


def damaged_words(words: list[str], random: Random) -> list[str]:
    """Change, drop, double or swap words of a command line."""
    made = list(words)
    for _ in range(random.randint(1, 3)):
        at, way = random.randrange(len(made)), random.randrange(5)
        if random.random() < 0.5:
            name, equals, value = made[at].rpartition("=")
            made[at] = f"{name}{equals}{near(value, random)}"
        elif way == 0 and len(made) > 1:
            del made[at]
        elif way == 1:
            made.insert(at, made[at])
        elif way == 2:
            other = random.randrange(len(made))
            made[at], made[other] = made[other], made[at]
        elif way == 3 and "=" in made[at]:
            made[at] = made[at].partition("=")[0] + "=" + random.choice(_WORDS)
        else:
            made[at] = random.choice(_WORDS)
    return made


MUTATORS: dict[str, Mutator] = {
    "json": json_damaged,
    "yaml": yaml_damaged,
    "xml": xml_damaged,
    "lines": lines_damaged,
    "table": table_damaged,
    "arrays": arrays_damaged,
    "bytes": bytes_damaged,
}
