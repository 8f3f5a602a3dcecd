"use strict";
/* A stretch of time over some rows, chosen with the pointer, and the table of what is inside. */

function measureRanges(c) {
  const MOST = 12;
  let order = "busy";

  /* Rows of the lines between two heights (CSS pixels of the canvas). */
  function rowsBetween(y0, y1) {
    const [low, high] = [Math.min(y0, y1), Math.max(y0, y1)].map(y => y - AXIS + c.state.top);
    return c.state.lines.filter(line => line.y < high && line.y + line.height > low).flatMap(line => line.kind === "row" ? [line.row] : line.shut ? line.rows : []);
  }

  /* Sums what lies in [t0, t1) by meaning of its name: { name, look, count, busy, wait, bytes }. */
  function inside(range) {
    const found = new Map(), { data, facts } = c;
    let covered = 0;
    for (const row of range.rows) {
      const [low, high] = ViewerData.visible(data, row, range.t0, range.t1);
      let reach = range.t0;
      for (let i = low; i < high; i++) {
        const begin = data.begin[i], start = begin + data.wait[i], end = start + data.length[i];
        const wait = Math.max(0, Math.min(start, range.t1) - Math.max(begin, range.t0));
        const busy = Math.max(0, Math.min(end, range.t1) - Math.max(start, range.t0));
        if (!wait && !busy) continue;
        const from = Math.max(begin, reach), to = Math.min(end, range.t1);
        if (to > from) { covered += to - from; reach = to; }
        const meaning = data.meanings[data.what[i]], name = facts.words[meaning[0]].replace(/\d+/g, "…");
        if (!found.has(name)) found.set(name, { name, look: meaning[1], count: 0, busy: 0, wait: 0 });
        const one = found.get(name);
        one.count++;
        one.busy += busy;
        one.wait += wait;
      }
    }
    return { parts: [...found.values()], covered };
  }

  function show(range) {
    c.state.range = range;
    c.range.hidden = !range;
    c.range.replaceChildren();
    c.again();
    if (!range) return;
    const { parts, covered } = inside(range), tick = c.facts.tick, span = range.t1 - range.t0, room = span * range.rows.length;
    const head = make("p", "chosen", c.range);
    make("b", "", head, Words.time(span * tick));
    make("span", "muted", head, ` from ${Words.exact(Math.round(range.t0) * tick)}, ${range.rows.length} ${range.rows.length === 1 ? "row" : "rows"}, ${(100 * covered / Math.max(1, room)).toFixed(1)}% taken `);
    const button = (text, act) => { const one = make("button", "", head, text); one.type = "button"; one.addEventListener("click", act); };
    button("zoom here", () => c.setView(range.t0, range.t1));
    button("close", () => show(null));
    if (!parts.length) { make("p", "muted", c.range, "Nothing runs here."); return; }
    const frame = make("div", "scroll", c.range), table = make("table", "", frame), line = make("tr", "", make("thead", "", table));
    for (const [key, title] of [["name", "what"], ["count", "spans"], ["busy", "time"], ["share", "of the rows"], ["mean", "mean"], ["wait", "waiting"]]) {
      const cell = make("th", key === "name" ? "" : "right", line), sorter = make("button", "sorter", cell, title);
      sorter.type = "button";
      if (key === order) cell.setAttribute("aria-sort", "descending");
      sorter.addEventListener("click", () => { order = key; show(range); });
    }
    const value = one => order === "mean" ? one.busy / one.count : order === "share" ? one.busy : one[order];
    parts.sort((a, b) => order === "name" ? (a.name < b.name ? -1 : 1) : value(b) - value(a));
    const body = make("tbody", "", table);
    for (const one of parts.slice(0, range.all ? parts.length : MOST)) {
      const row = make("tr", "", body), what = make("td", "", row);
      make("i", "swatch", what).style.background = c.facts.looks[one.look].fill;
      make("span", "", what, one.name);
      for (const text of [Words.count(one.count), Words.time(one.busy * tick), `${(100 * one.busy / room).toFixed(1)}%`, Words.time(one.busy / one.count * tick), one.wait ? Words.time(one.wait * tick) : ""]) make("td", "right", row, text);
    }
    if (parts.length > MOST && !range.all) button(`all ${parts.length}`, () => show({ ...range, all: true }));
  }

  function draw(ctx) {
    const range = c.state.range;
    if (!range) return;
    const a = c.xAt(range.t0), b = c.xAt(range.t1);
    ctx.fillStyle = ctx.strokeStyle = c.pal.focus;
    ctx.lineWidth = 1.5;
    const wanted = new Set(range.rows), lines = c.state.lines.filter(line => line.kind === "row" ? wanted.has(line.row) : line.shut && line.rows.some(row => wanted.has(row)));
    if (!lines.length) return;
    const top = AXIS + lines[0].y - c.state.top, low = AXIS + lines[lines.length - 1].y + lines[lines.length - 1].height - c.state.top;
    ctx.globalAlpha = 0.12;
    ctx.fillRect(a, top, b - a, low - top);
    ctx.globalAlpha = 1;
    ctx.strokeRect(a, top - 1, b - a, low - top + 2);
  }

  Object.assign(c, { rowsBetween, inside, showRange: show, drawRange: draw });
}
