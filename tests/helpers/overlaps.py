"""Texts of a page that lie on each other, measured as the browser laid them out."""

from __future__ import annotations

__all__ = ["OVERLAPS"]

OVERLAPS = """
(() => {
  // Every word that is seen: a box per line of a text node, in SVG a box per text element.
  const boxes = [];
  const seen = (element) => element.checkVisibility(
    { opacityProperty: true, visibilityProperty: true });
  const silent = /^(SCRIPT|STYLE|OPTION|TITLE|desc|title)$/;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || silent.test(parent.tagName)) continue;
    if (!seen(parent)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      if (r.width < 1 || r.height < 1) continue;
      // Lines of text are higher than their letters: a quarter of them is room.
      const room = Math.min(r.height, r.width) / 4;
      const upright = r.height > 2 * r.width;
      boxes.push([r.left + (upright ? room : 1), r.right - (upright ? room : 1),
                  r.top + (upright ? 1 : room), r.bottom - (upright ? 1 : room),
                  node.textContent.trim().slice(0, 40)]);
    }
  }
  const found = [];
  boxes.sort((a, b) => a[2] - b[2]);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j][2] < boxes[i][3]; j++) {
      const [a, b] = [boxes[i], boxes[j]];
      if (Math.min(a[1], b[1]) - Math.max(a[0], b[0]) > 0.5) found.push(`${a[4]} | ${b[4]}`);
    }
  }
  return found;
})()
"""
"""Pairs of texts whose boxes meet; [] where every label can be read."""
