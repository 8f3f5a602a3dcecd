"use strict";
/* What lies over the rows and changes with the pointer: outlines, arrows, the critical path. */

const MOST_ARROWS = 1500;

function drawOverlay(c) {
  /* Where a span is drawn, in CSS pixels; null where its row is folded away. */
  function place(i) {
    const line = c.state.lineOf.get(ViewerData.rowOf(c.data, i));
    if (!line) return null;
    const y = AXIS + line.y - c.state.top;
    return { left: c.xAt(c.data.begin[i]), start: c.xAt(c.data.begin[i] + c.data.wait[i]), right: c.xAt(ViewerData.endOf(c.data, i)), y, height: line.height };
  }
  function outline(ctx, i, colour, thick) {
    const at = c.place(i);
    if (!at || at.y + at.height < AXIS || at.y > c.size.height) return;
    const left = Math.max(c.size.gutter - 2, at.left), right = Math.min(c.size.gutter + c.size.plot + 2, Math.max(at.right, at.left + 2));
    if (right < left) return;
    ctx.strokeStyle = colour;
    ctx.lineWidth = thick;
    ctx.strokeRect(left, at.y, right - left, at.height);
  }
  function drawOver(ctx = c.over.getContext("2d")) {
    const r = c.pal.ratio;
    ctx.setTransform(r, 0, 0, r, 0, 0);
    ctx.clearRect(0, 0, c.size.width, c.size.height);
    ctx.save();
    ctx.beginPath();
    ctx.rect(c.size.gutter - 1, AXIS, c.size.plot + 2, c.size.body);
    ctx.clip();
    if (c.state.path) drawPath(ctx);
    if (c.state.arrows) drawArrows(ctx);
    c.drawRange(ctx);
    if (c.state.chosen >= 0) {
      for (const i of [...ViewerData.members(c.data, c.data.instance[c.state.chosen])].slice(0, 4096)) outline(ctx, i, c.pal.ink, 1);
      outline(ctx, c.state.chosen, c.pal.focus, 2.5);
      if (isMessage(c.state.chosen)) arrow(ctx, c.data.instance[c.state.chosen]);
      if (ViewerData.launcher(c.data, c.state.chosen) >= 0) launch(ctx, c.state.chosen);
      for (const i of ViewerData.launched(c.data, c.state.chosen)) launch(ctx, i);
    }
    if (c.state.hover >= 0) outline(ctx, c.state.hover, c.pal.ink, 1.5);
    if (c.state.band) {
      const [a, b, top, low] = c.state.band;
      ctx.fillStyle = c.pal.focus;
      ctx.globalAlpha = 0.2;
      ctx.fillRect(Math.min(a, b), top === undefined ? AXIS : Math.min(top, low), Math.abs(b - a), top === undefined ? c.size.body : Math.abs(low - top));
      ctx.globalAlpha = 1;
    }
    ctx.restore();
  }
  const isMessage = i => c.data.meanings[c.data.what[i]][3] <= -2;
  function arrow(ctx, number) {
    let send = -1, recv = -1;
    for (const i of ViewerData.members(c.data, number)) if (c.data.meanings[c.data.what[i]][3] === -2) send = i; else recv = i;
    if (send < 0 || recv < 0) return;
    const from = c.place(send), to = c.place(recv);
    if (!from || !to) return;
    bow(ctx, from.start, from.y + from.height / 2, to.right, to.y + to.height / 2);
  }
  /* From the end of what the host did to the start of what it launched. */
  function launch(ctx, i) {
    const from = c.place(ViewerData.launcher(c.data, i)), to = c.place(i);
    if (from && to) bow(ctx, from.right, from.y + from.height, to.left, to.y);
  }
  function bow(ctx, xa, ya, xb, yb) {
    const bend = Math.max(12, Math.abs(xb - xa) / 3), tip = yb > ya ? 1 : -1;
    ctx.strokeStyle = ctx.fillStyle = c.pal.ink;
    ctx.lineWidth = 1.2;
    ctx.beginPath();
    ctx.moveTo(xa, ya);
    ctx.bezierCurveTo(xa + bend, ya, xb - bend, yb, xb, yb);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(xb, yb);
    ctx.lineTo(xb - 7, yb - 4 * tip);
    ctx.lineTo(xb - 7, yb + 4 * tip);
    ctx.fill();
  }
  function drawArrows(ctx) {
    const numbers = new Set(), launches = [];
    for (const line of c.state.lines) {
      const y = line.y - c.state.top;
      if (line.kind !== "row" || y + line.height < 0 || y > c.size.body) continue;
      const [low, high] = ViewerData.visible(c.data, line.row, c.state.t0, c.state.t1);
      for (let i = low; i < high; i++) {
        if (isMessage(i)) numbers.add(c.data.instance[i]);
        else if (ViewerData.launcher(c.data, i) >= 0) launches.push(i);
        if (numbers.size + launches.length > MOST_ARROWS) { c.say("too many arrows for this view: zoom in"); return; }
      }
    }
    if (!numbers.size && !launches.length) c.say(c.data.launch ? "no messages or launches in this view" : "no messages in this view");
    for (const i of launches) launch(ctx, i);
    for (const number of numbers) arrow(ctx, number);
  }
  /* A bar under each box on the path, and a line where the path goes over to another rank. */
  function drawPath(ctx) {
    ctx.strokeStyle = ctx.fillStyle = c.pal.path;
    ctx.lineWidth = 1.5;
    for (const path of c.facts.paths) {
      let last = null, lane = null;
      for (const i of path) {
        const at = c.place(i), mine = ViewerData.laneOf(c.data, i);
        if (!at) continue;
        const left = Math.max(-1e5, at.start), right = Math.min(1e5, at.right), thick = Math.min(4, at.height / 2);
        ctx.fillRect(left, at.y + at.height - thick, Math.max(1, right - left), thick);
        if (last && lane !== mine) {
          ctx.beginPath();
          ctx.moveTo(last[0], last[1]);
          ctx.lineTo(left, at.y + at.height - thick);
          ctx.stroke();
        }
        last = [right, at.y + at.height - thick];
        lane = mine;
      }
    }
  }

  Object.assign(c, { drawOver, place });
}
