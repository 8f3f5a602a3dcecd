"use strict";
/* Pointer, wheel, fingers and keys. */

function useHands(c) {
  const pointers = new Map();
  let moved = 0, drag = null;
  const spot = event => { const at = c.main.getBoundingClientRect(); return [event.clientX - at.left, event.clientY - at.top]; };
  c.main.addEventListener("pointerdown", event => {
    const [x, y] = spot(event);
    pointers.set(event.pointerId, [x, y]);
    c.main.setPointerCapture(event.pointerId);
    moved = 0;
    const onBar = c.size.content > c.size.body && x > c.size.width - BAR - 6;
    drag = { kind: onBar ? "bar" : (event.altKey || c.state.measure) && x > c.size.gutter ? "range" : event.shiftKey && x > c.size.gutter ? "band" : x < c.size.gutter ? "gutter" : "pan", x, y };
  });
  c.main.addEventListener("pointermove", event => {
    const [x, y] = spot(event), last = pointers.get(event.pointerId);
    if (!last) { hoverAt(x, y, event); return; }
    const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    pointers.set(event.pointerId, [x, y]);
    moved += Math.abs(x - last[0]) + Math.abs(y - last[1]);
    if (others.length) { pinch(others[0], last, [x, y]); return; }
    if (!drag) return;
    if (drag.kind === "bar") { c.state.top += (y - last[1]) * c.size.content / c.size.body; c.clampTop(); c.changed(); }
    else if (drag.kind === "band") { c.state.band = [drag.x, x]; c.again(); }
    else if (drag.kind === "range") { c.state.band = [drag.x, x, drag.y, y]; c.again(); }
    else {
      if (drag.kind === "pan") c.pan((last[0] - x) / c.size.plot);
      if (event.pointerType !== "touch" && c.size.content > c.size.body) { c.state.top += last[1] - y; c.clampTop(); c.changed(); }
    }
    if (moved > 4) c.showTip(-1);
  });
  function pinch(other, before, after) {
    const was = Math.max(8, Math.abs(before[0] - other[0])), now = Math.max(8, Math.abs(after[0] - other[0]));
    c.zoom(was / now, c.timeAt((after[0] + other[0]) / 2));
  }
  function release(event) {
    const known = pointers.delete(event.pointerId), [x, y] = spot(event);
    if (known && drag && drag.kind === "band" && c.state.band) {
      const [a, b] = c.state.band.map(c.timeAt).sort((p, q) => p - q);
      c.state.band = null;
      c.setView(a, b);
    } else if (known && drag && drag.kind === "range" && c.state.band && moved > 4) {
      const [a, b] = [drag.x, x].map(at => Math.max(0, Math.min(c.whole, c.timeAt(at)))).sort((p, q) => p - q), rows = c.rowsBetween(drag.y, y);
      if (b > a && rows.length) c.showRange({ t0: a, t1: b, rows });
    } else if (known && moved < 5 && event.type === "pointerup") tapped(x, y);
    c.state.band = null;
    if (!pointers.size) drag = null;
  }
  c.main.addEventListener("pointerup", release);
  c.main.addEventListener("pointercancel", release);
  c.main.addEventListener("pointerleave", () => { c.state.hover = -1; c.showTip(-1); c.again(); });
  c.main.addEventListener("dblclick", () => c.setView(0, c.whole));
  function hoverAt(x, y) {
    const line = c.lineAt(y), i = c.spanUnder(x, y);
    c.main.style.cursor = line && line.kind === "head" ? "pointer" : c.state.measure || i >= 0 ? "crosshair" : "grab";
    if (i !== c.state.hover) { c.state.hover = i; c.again(); }
    c.showTip(i, x, y + MAP + 6);
  }
  function tapped(x, y) {
    const line = c.lineAt(y);
    if (line && line.kind === "head") {
      if (c.state.closed.has(line.key)) c.state.closed.delete(line.key); else c.state.closed.add(line.key);
      c.fit();
      return;
    }
    const i = c.spanUnder(x, y);
    c.choose(i);
    if (matchMedia("(pointer: coarse)").matches) c.showTip(-1);
  }
  c.main.addEventListener("wheel", event => {
    const [x] = spot(event), sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    const all = c.state.t1 - c.state.t0 >= c.whole;
    if (x < c.size.gutter || x > c.size.gutter + c.size.plot) {
      if (c.size.content <= c.size.body) return;
      c.state.top += event.deltaY;
      c.clampTop();
      c.changed();
    } else if (Math.abs(sideways) > Math.abs(event.deltaY) || event.shiftKey) {
      if (all) return;
      c.pan(sideways / c.size.plot);
    } else {
      if (all && event.deltaY > 0) return;
      const lines = event.deltaMode === 1 ? 33 : 1;
      c.zoom(Math.min(4, Math.max(0.25, 1.0015 ** (event.deltaY * lines))), c.timeAt(x));
    }
    c.showTip(-1);
    event.preventDefault();
  }, { passive: false });
  let mapping = false;
  function toMap(event) {
    const at = c.map.getBoundingClientRect(), share = (event.clientX - at.left - c.size.gutter) / c.size.plot;
    const span = c.state.t1 - c.state.t0, t0 = Math.max(0, Math.min(share * c.whole - span / 2, c.whole - span));
    c.setView(t0, t0 + span);
  }
  c.map.addEventListener("pointerdown", event => { mapping = true; c.map.setPointerCapture(event.pointerId); toMap(event); });
  c.map.addEventListener("pointermove", event => { if (mapping) toMap(event); });
  for (const kind of ["pointerup", "pointercancel"]) c.map.addEventListener(kind, () => { mapping = false; });
  const keys = {
    ArrowLeft: () => c.pan(-0.15), ArrowRight: () => c.pan(0.15), "+": () => c.zoom(0.6), "=": () => c.zoom(0.6),
    "-": () => c.zoom(1 / 0.6), _: () => c.zoom(1 / 0.6), 0: () => c.setView(0, c.whole), Home: () => c.pan(-1e9), End: () => c.pan(1e9),
    ArrowUp: () => scroll(-40), ArrowDown: () => scroll(40), PageUp: () => scroll(-c.size.body), PageDown: () => scroll(c.size.body),
    "/": () => c.box.focus(), n: () => c.next(1), p: () => c.next(-1), f: () => { if (c.state.chosen >= 0) c.reveal(c.state.chosen); },
    m: () => c.toggle("measure", c.pressed.measure),
    a: () => c.pressed.arrows && c.toggle("arrows", c.pressed.arrows), c: () => c.pressed.path && c.toggle("path", c.pressed.path),
    Escape: () => { c.choose(-1); c.showRange(null); if (c.state.lit) { c.box.value = ""; c.search(""); } },
  };
  function scroll(by) {
    if (c.size.content <= c.size.body) return false;
    const before = c.state.top;
    c.state.top += by;
    c.clampTop();
    c.changed();
    return c.state.top !== before;
  }
  c.main.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    if (keys[event.key]() === false) return;
    event.preventDefault();
  });
}
