"use strict";
/* The canvas of the viewer: its rows, its time axis, its scroll bar, and the minimap above. */

function drawRows(c) {
  function drawMain(ctx = c.main.getContext("2d")) {
    const r = c.pal.ratio;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = c.pal.paper;
    ctx.fillRect(0, 0, c.main.width, c.main.height);
    const at = { x: Math.round(c.size.gutter * r), width: Math.round(c.size.plot * r) };
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, AXIS * r, c.main.width, c.size.body * r);
    ctx.clip();
    for (const line of c.state.lines) {
      const y = line.y - c.state.top;
      if (y + line.height < 0 || y > c.size.body) continue;
      drawLine(ctx, line, { ...at, y: Math.round((AXIS + y) * r), height: Math.round(line.height * r) });
    }
    if (c.whole > c.facts.reach) drawAfter(ctx, r, at);
    if (c.facts.mark) drawMark(ctx, r, c.facts.mark);
    ctx.restore();
    drawAxis(ctx, r);
    if (c.size.content > c.size.body) drawBar(ctx, r);
  }
  /* Nothing runs after the end; the axis may be longer, for another run to stand beside it. */
  function drawAfter(ctx, r, at) {
    const from = Math.max(at.x, Math.round(c.xAt(c.facts.reach) * r));
    if (from >= at.x + at.width) return;
    ctx.fillStyle = c.pal.paper;
    ctx.fillRect(from, 0, at.x + at.width - from, c.main.height);
  }
  /* Where another run ends. */
  function drawMark(ctx, r, mark) {
    const x = c.xAt(mark.at);
    if (x < c.size.gutter || x > c.size.gutter + c.size.plot + 1) return;
    ctx.fillStyle = c.pal.focus;
    ctx.fillRect(Math.round(Math.min(x, c.size.gutter + c.size.plot - 1.5) * r), AXIS * r, 1.5 * r, c.size.body * r);
    ctx.font = `${11 * r}px ${c.pal.font}`;
    ctx.textAlign = "right";
    ctx.textBaseline = "bottom";
    const wide = ctx.measureText(mark.label).width, low = (AXIS + c.size.body - 3) * r;
    ctx.fillStyle = c.pal.paper;
    ctx.globalAlpha = 0.85;
    ctx.fillRect((x - 8) * r - wide, low - 14 * r, wide + 6 * r, 16 * r);
    ctx.globalAlpha = 1;
    ctx.fillStyle = c.pal.focus;
    ctx.fillText(mark.label, (x - 5) * r, low);
  }
  function drawLine(ctx, line, at) {
    const r = c.pal.ratio;
    ctx.textBaseline = "middle";
    const middle = at.y + at.height / 2;
    if (line.kind === "head") {
      if (line.shut) ViewerPaint.band(ctx, c.data, c.pal, { ...at, rows: line.rows }, c.state, c.state.lit);
      else { ctx.fillStyle = c.pal.head; ctx.fillRect(0, at.y, at.x + at.width, at.height); }
      ctx.fillStyle = c.pal.ink;
      ctx.font = `bold ${12 * r}px ${c.pal.font}`;
      ctx.textAlign = "left";
      const text = `${line.shut ? "▸" : "▾"} ${line.label}${line.shut ? "" : ` · ${line.count} ${line.count === 1 ? "lane" : "lanes"}`}`;
      clipped(ctx, text, 2 * r, middle, line.shut ? at.x - 6 * r : at.x + at.width);
      return;
    }
    ViewerPaint.row(ctx, c.data, c.pal, { ...at, row: line.row, compute: line.compute }, c.state, c.state.lit);
    if (line.name) {
      ctx.fillStyle = c.pal.muted;
      ctx.font = `${Math.min(11 * r, at.height - 1)}px ${c.pal.font}`;
      ctx.textAlign = "right";
      const room = at.x - 10 * r, fits = text => ctx.measureText(text).width <= room;
      let text = line.name;
      while (text.length > 4 && !fits(text)) text = `${text.slice(0, -2).trimEnd()}…`;
      ctx.fillText(text, at.x - 8 * r, middle);
    }
    if (!line.label) return;
    ctx.fillStyle = c.pal.ink;
    ctx.font = `${(at.height < 15 * r ? 10 : 12) * r}px ${c.pal.font}`;
    ctx.textAlign = "right";
    const room = at.x - 8 * r;
    let text = line.label;
    if (ctx.measureText(text).width > room) text = text.replace("rank ", "r");
    ctx.fillText(text, at.x - 8 * r, middle, room);
  }
  function clipped(ctx, text, x, y, room) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, 0, Math.max(0, room - x), c.main.height);
    ctx.clip();
    ctx.fillText(text, x, y);
    ctx.restore();
  }
  function ticks() {
    const tick = c.facts.tick, window = (c.state.t1 - c.state.t0) * tick, [unit, length] = Words.unit(window);
    const zoomed = c.state.t0 > 0 && c.state.t1 - c.state.t0 < c.whole * 0.999, base = zoomed ? c.state.t0 * tick : 0;
    const most = Math.max(2, Math.floor(c.size.plot / 90)), raw = window / length / most;
    const power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(k => k * power).find(s => s >= raw);
    const found = [];
    const from = zoomed ? 0 : Math.ceil(c.state.t0 * tick / length / step);
    for (let k = from; k * step * length + base <= c.state.t1 * tick * (1 + 1e-12); k++)
      found.push({ t: (k * step * length + base) / tick, text: `${zoomed && k ? "+" : ""}${Words.plain(k * step)}` });
    return { found, unit, base, zoomed };
  }
  function drawAxis(ctx, r) {
    const { found, unit, base, zoomed } = ticks();
    ctx.fillStyle = c.pal.paper;
    ctx.fillRect(0, 0, c.main.width, AXIS * r);
    ctx.font = `${11 * r}px ${c.pal.font}`;
    ctx.textBaseline = "middle";
    found.forEach(({ t, text }, k) => {
      const x = Math.round(c.xAt(t) * r);
      ctx.fillStyle = "rgba(107,114,128,0.16)";
      ctx.fillRect(x, AXIS * r, Math.max(1, r), c.size.body * r);
      ctx.fillStyle = c.pal.muted;
      const shown = zoomed && k === 0 ? `at ${longTime(base)}` : `${text} ${unit}`;
      const wide = ctx.measureText(shown).width / r, left = x / r;
      if (zoomed && k > 0 && left - wide / 2 < c.size.gutter + ctx.measureText(`at ${longTime(base)}`).width / r + 10) return;
      ctx.textAlign = k === 0 ? "left" : "center";
      if (k > 0 && left + wide / 2 > c.size.gutter + c.size.plot) { if (left + 2 > c.size.gutter + c.size.plot) return; ctx.textAlign = "right"; }
      ctx.fillText(shown, ctx.textAlign === "right" ? (c.size.gutter + c.size.plot) * r : x, AXIS / 2 * r);
    });
    c.facts.steps.forEach(step => { if (step) drawStep(ctx, r, step); });
  }
  function longTime(ps) {
    const [unit, length] = Words.unit(c.whole * c.facts.tick);
    const decimals = Math.max(0, Math.min(9, Math.ceil(Math.log10(length / Math.max(1, (c.state.t1 - c.state.t0) * c.facts.tick))) + 3));
    return `${(ps / length).toFixed(decimals)} ${unit}`;
  }
  /* A thin bar under the axis: the step that the figures are about. */
  function drawStep(ctx, r, [from, to]) {
    const a = Math.max(c.size.gutter, c.xAt(from)), b = Math.min(c.size.gutter + c.size.plot, c.xAt(to));
    if (b <= a) return;
    ctx.fillStyle = c.pal.focus;
    ctx.fillRect(a * r, (AXIS - 3) * r, (b - a) * r, 2 * r);
  }
  function drawBar(ctx, r) {
    const x = c.size.width - BAR, tall = Math.max(24, c.size.body * c.size.body / c.size.content);
    const y = AXIS + c.state.top / (c.size.content - c.size.body) * (c.size.body - tall);
    ctx.fillStyle = c.pal.lane;
    ctx.fillRect(x * r, AXIS * r, BAR * r, c.size.body * r);
    ctx.fillStyle = c.pal.muted;
    ctx.globalAlpha = 0.55;
    ctx.fillRect((x + 2) * r, y * r, (BAR - 4) * r, tall * r);
    ctx.globalAlpha = 1;
  }
  function drawMap() {
    const ctx = c.map.getContext("2d"), r = c.pal.ratio;
    const x = Math.round(c.size.gutter * r), width = Math.round(c.size.plot * r);
    if (!c.miniature) {
      c.miniature = document.createElement("canvas");
      c.miniature.width = width;
      c.miniature.height = c.map.height;
      const rows = c.facts.lanes.map(ViewerLines.main(c.facts));
      ViewerPaint.band(c.miniature.getContext("2d"), c.data, c.pal, { x: 0, y: 0, width, height: c.map.height, rows }, { t0: 0, t1: c.whole }, null);
    }
    ctx.fillStyle = c.pal.paper;
    ctx.fillRect(0, 0, c.map.width, c.map.height);
    ctx.drawImage(c.miniature, x, 0);
    const a = x + c.state.t0 / c.whole * width, b = Math.max(a + 2 * r, x + c.state.t1 / c.whole * width);
    ctx.fillStyle = c.pal.paper;
    ctx.globalAlpha = 0.7;
    ctx.fillRect(x, 0, a - x, c.map.height);
    ctx.fillRect(b, 0, x + width - b, c.map.height);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = c.pal.focus;
    ctx.lineWidth = 1.5 * r;
    ctx.strokeRect(a + r, r, Math.max(r, b - a - 2 * r), c.map.height - 2 * r);
    ctx.fillStyle = c.pal.muted;
    ctx.font = `${11 * r}px ${c.pal.font}`;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.fillText("all", x - 8 * r, c.map.height / 2);
  }

  Object.assign(c, { drawMain, drawMap });
}
