"""
Run the example notebooks, and write them with their outputs.

    python benchmarks/notebook_pages.py

docs/notebooks holds them without outputs. build/notebooks gets NAME.ipynb, as Jupyter would save
it, and for the site NAME.md with its figures as pages beside one plotly.js.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES, FOLDER = ROOT / "docs" / "notebooks", ROOT / "build" / "notebooks"
DOWNLOAD = "\n[Download it]({}) and run it in Jupyter.\n"
FIGURE = (
    '<!doctype html><meta charset="utf-8"><title>figure</title><style>body{{margin:0}}</style>'
    '<script src="plotly.js"></script>{}'
)


def main() -> None:
    """Run all notebooks."""
    from plotly.offline import get_plotlyjs

    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "plotly.js").write_text(get_plotlyjs(), encoding="utf-8")
    for path in sorted(SOURCES.glob("*.ipynb")):
        book = json.loads(path.read_text(encoding="utf-8"))
        page = run_notebook(book, path.stem)
        (FOLDER / path.name).write_text(json.dumps(book, indent=1) + "\n", encoding="utf-8")
        (FOLDER / f"{path.stem}.md").write_text(page, encoding="utf-8")
        print(f"wrote build/notebooks/{path.stem}.md")


def plain_page(path: Path) -> str:
    """Return a notebook as a page without outputs."""
    book = json.loads(path.read_text(encoding="utf-8"))
    parts = [
        _text(cell) if cell["cell_type"] == "markdown" else _code(cell) for cell in book["cells"]
    ]
    told = "\nOutputs are made by `python benchmarks/notebook_pages.py`.\n"
    return "\n".join([parts[0], told, DOWNLOAD.format(path.name), *parts[1:]])


def run_notebook(book: dict[str, Any], name: str) -> str:
    """Fill in the outputs of a notebook's cells; return it as a page."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts: list[str] = []
    count = 0
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(_text(cell))
            continue
        count += 1
        cell["execution_count"] = count
        printed, shown = _run(_source(cell), names)
        cell["outputs"], page = _outputs(printed, shown, count, f"{name}-{count}")
        parts += [_code(cell), page]
    return "\n".join([parts[0], DOWNLOAD.format(f"{name}.ipynb"), *parts[1:]])


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def _text(cell: dict[str, Any]) -> str:
    return f"{_source(cell)}\n"


def _code(cell: dict[str, Any]) -> str:
    return f"```python\n{_source(cell)}\n```\n"


def _run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell; return what it prints, and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), names)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return out.getvalue(), value


def _outputs(printed: str, shown: Any, count: int, name: str) -> tuple[list[dict[str, Any]], str]:
    """Return a cell's outputs as a notebook holds them, and as a page shows them."""
    outputs: list[dict[str, Any]] = []
    page = ""
    if printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed})
        page += f"```text\n{printed}```\n"
    if shown is None:
        return outputs, page
    data: dict[str, Any] = {"text/plain": repr(shown)}
    if hasattr(shown, "to_plotly_json"):
        data["application/vnd.plotly.v1+json"] = json.loads(shown.to_json())
        page += _figure(shown, name)
    elif hasattr(shown, "_repr_html_"):
        data["text/html"] = shown._repr_html_()
        page += f'<div markdown="0">{data["text/html"]}</div>\n'
    else:
        page += f"```text\n{data['text/plain']}\n```\n"
    outputs.append(
        {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data}
    )
    return outputs, page


def _figure(figure: Any, name: str) -> str:
    height = int(figure.layout.height or 450)
    body = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name)
    (FOLDER / f"{name}.html").write_text(FIGURE.format(body), encoding="utf-8")
    return f'<iframe class="figure" src="{name}.html" height="{height}" title="figure"></iframe>\n'


if __name__ == "__main__":
    main()
