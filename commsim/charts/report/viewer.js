"use strict";
/* The viewer: a canvas that shows every span of a run, with a minimap, a search and details on demand. */

const Viewer = (() => {
  const AXIS = 24, MAP = 34, BAR = 10;
  const MOST_ARROWS = 1500;

  function make(tag, name, parent, text) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    if (parent) parent.appendChild(element);
    return element;
  }

  async function start(root, facts) {
    const note = make("p", "busy", root, `unpacking ${Words.count(facts.spans)} spans …`);
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const data = await ViewerData.load(facts);
    note.remove();
    const viewer = build(root, data);
    root.viewer = viewer;
    root.dataset.ready = "1";
    return viewer;
  }

  function build(root, data) {
    const facts = data.facts, whole = facts.reach;
    const state = {
      t0: 0, t1: whole, top: 0, by: ViewerLines.usual(facts.lanes), closed: new Set(), lit: null,
      hover: -1, chosen: -1, arrows: false, path: false, found: null, at: -1, lines: [], height: 1,
    };
    const tools = make("div", "tools", root), legend = make("div", "legend", root);
    const stage = make("div", "stage", root);
    const map = make("canvas", "map", stage), main = make("canvas", "main", stage), over = make("canvas", "over", stage);
    const tip = make("div", "tip", stage), details = make("div", "details", root);
    tip.hidden = true;
    details.setAttribute("aria-live", "polite");
    main.tabIndex = 0;
    main.setAttribute("role", "application");
    main.setAttribute("aria-label", `timeline of ${Words.count(facts.spans)} spans; arrow keys move, plus and minus zoom, slash searches`);
    let pal = null, size = { width: 0, height: 0, gutter: 0 }, dirty = true, waiting = 0;

    /* ---- layout ---- */
    function fit() {
      const ratio = Math.min(3, window.devicePixelRatio || 1), width = stage.clientWidth;
      if (!width) return;
      const room = Math.max(260, Math.min(900, innerHeight * 0.62));
      const made = ViewerLines.build(facts, state.by, state.closed, room);
      state.lines = made.lines;
      const body = Math.min(made.height, Math.max(260, innerHeight * 0.78));
      const context = main.getContext("2d");
      context.font = `12px ${getComputedStyle(stage).fontFamily}`;
      const names = state.lines.map(line => line.kind === "row" ? context.measureText(line.label).width : 0);
      const gutter = Math.min(Math.max(34, ...names) + 12, width < 600 ? 76 : 140);
      size = { width, height: AXIS + body, gutter, plot: width - gutter - (made.height > body ? BAR + 4 : 0), body, content: made.height };
      for (const canvas of [main, over]) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(size.height * ratio);
        canvas.style.height = `${size.height}px`;
      }
      map.width = Math.round(width * ratio);
      map.height = Math.round(MAP * ratio);
      map.style.height = `${MAP}px`;
      pal = ViewerPaint.palette(facts.looks, getComputedStyle(document.documentElement).getPropertyValue("--paper").trim(), context, ratio);
      pal.font = getComputedStyle(stage).fontFamily;
      clampTop();
      miniature = null;
      changed();
    }
    function clampTop() { state.top = Math.max(0, Math.min(state.top, size.content - size.body)); }
    function setView(t0, t1) {
      const least = Math.min(whole, 20), span = Math.min(whole, Math.max(least, t1 - t0));
      t0 = Math.max(0, Math.min(t0 + (t1 - t0 - span) / 2, whole - span));
      state.t0 = t0;
      state.t1 = t0 + span;
      changed();
    }
    function zoom(factor, t) {
      if (t === undefined) t = (state.t0 + state.t1) / 2;
      const span = (state.t1 - state.t0) * factor, share = (t - state.t0) / (state.t1 - state.t0);
      const kept = Math.min(whole, Math.max(20, span));
      const t0 = Math.max(0, Math.min(t - share * kept, whole - kept));
      setView(t0, t0 + kept);
    }
    function pan(share) {
      const by = share * (state.t1 - state.t0), span = state.t1 - state.t0;
      const t0 = Math.max(0, Math.min(state.t0 + by, whole - span));
      setView(t0, t0 + span);
    }
    const timeAt = x => state.t0 + (x - size.gutter) / size.plot * (state.t1 - state.t0);
    const xAt = t => size.gutter + (t - state.t0) / (state.t1 - state.t0) * size.plot;
    function lineAt(y) {
      const inside = y - AXIS + state.top;
      return state.lines.find(line => inside >= line.y && inside < line.y + line.height + (line.kind === "head" ? 0 : 1)) || null;
    }
    function spanUnder(x, y) {
      const line = lineAt(y);
      if (!line || line.kind !== "row" || x < size.gutter || x > size.gutter + size.plot) return -1;
      return ViewerData.spanAt(data, line.row, timeAt(x), 2 * (state.t1 - state.t0) / size.plot);
    }

    /* ---- drawing ---- */
    function changed() { dirty = true; again(); }
    function again() { if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; paint(); }); }
    let miniature = null;
    function paint() {
      if (!pal || !size.width) return;
      const before = performance.now();
      if (dirty) { drawMain(); drawMap(); dirty = false; }
      drawOver();
      root.dataset.painted = String(performance.now() - before);
    }
    function drawMain() {
      const ctx = main.getContext("2d"), r = pal.ratio;
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      ctx.fillStyle = pal.paper;
      ctx.fillRect(0, 0, main.width, main.height);
      const at = { x: Math.round(size.gutter * r), width: Math.round(size.plot * r) };
      ctx.save();
      ctx.beginPath();
      ctx.rect(0, AXIS * r, main.width, size.body * r);
      ctx.clip();
      for (const line of state.lines) {
        const y = line.y - state.top;
        if (y + line.height < 0 || y > size.body) continue;
        drawLine(ctx, line, { ...at, y: Math.round((AXIS + y) * r), height: Math.round(line.height * r) });
      }
      ctx.restore();
      drawAxis(ctx, r);
      if (size.content > size.body) drawBar(ctx, r);
    }
    function drawLine(ctx, line, at) {
      const r = pal.ratio;
      ctx.textBaseline = "middle";
      const middle = at.y + at.height / 2;
      if (line.kind === "head") {
        if (line.shut) ViewerPaint.band(ctx, data, pal, { ...at, rows: line.rows }, state, state.lit);
        else { ctx.fillStyle = pal.head; ctx.fillRect(0, at.y, at.x + at.width, at.height); }
        ctx.fillStyle = pal.ink;
        ctx.font = `bold ${12 * r}px ${pal.font}`;
        ctx.textAlign = "left";
        const text = `${line.shut ? "▸" : "▾"} ${line.label}${line.shut ? "" : ` · ${line.count} ${line.count === 1 ? "lane" : "lanes"}`}`;
        clipped(ctx, text, 2 * r, middle, line.shut ? at.x - 6 * r : at.x + at.width);
        return;
      }
      ViewerPaint.row(ctx, data, pal, { ...at, row: line.row, compute: line.compute }, state, state.lit);
      if (!line.label) return;
      ctx.fillStyle = pal.ink;
      ctx.font = `${(at.height < 15 * r ? 10 : 12) * r}px ${pal.font}`;
      ctx.textAlign = "right";
      const room = at.x - 8 * r;
      let text = line.label;
      if (ctx.measureText(text).width > room) text = text.replace("rank ", "r");
      ctx.fillText(text, at.x - 8 * r, middle, room);
    }
    function clipped(ctx, text, x, y, room) {
      ctx.save();
      ctx.beginPath();
      ctx.rect(x, 0, Math.max(0, room - x), main.height);
      ctx.clip();
      ctx.fillText(text, x, y);
      ctx.restore();
    }
    function ticks() {
      const tick = facts.tick, window = (state.t1 - state.t0) * tick, [unit, length] = Words.unit(window);
      const zoomed = state.t1 - state.t0 < whole * 0.999, base = zoomed ? state.t0 * tick : 0;
      const most = Math.max(2, Math.floor(size.plot / 90)), raw = window / length / most;
      const power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(k => k * power).find(s => s >= raw);
      const found = [];
      const from = zoomed ? 0 : Math.ceil(state.t0 * tick / length / step);
      for (let k = from; k * step * length + base <= state.t1 * tick * (1 + 1e-12); k++)
        found.push({ t: (k * step * length + base) / tick, text: `${zoomed && k ? "+" : ""}${Words.plain(k * step)}` });
      return { found, unit, base, zoomed };
    }
    function drawAxis(ctx, r) {
      const { found, unit, base, zoomed } = ticks();
      ctx.fillStyle = pal.paper;
      ctx.fillRect(0, 0, main.width, AXIS * r);
      ctx.font = `${11 * r}px ${pal.font}`;
      ctx.textBaseline = "middle";
      found.forEach(({ t, text }, k) => {
        const x = Math.round(xAt(t) * r);
        ctx.fillStyle = "rgba(107,114,128,0.16)";
        ctx.fillRect(x, AXIS * r, Math.max(1, r), size.body * r);
        ctx.fillStyle = pal.muted;
        const shown = zoomed && k === 0 ? `at ${longTime(base)}` : `${text} ${unit}`;
        const wide = ctx.measureText(shown).width / r, left = x / r;
        if (zoomed && k > 0 && left - wide / 2 < size.gutter + ctx.measureText(`at ${longTime(base)}`).width / r + 10) return;
        ctx.textAlign = k === 0 ? "left" : "center";
        if (k > 0 && left + wide / 2 > size.gutter + size.plot) { if (left + 2 > size.gutter + size.plot) return; ctx.textAlign = "right"; }
        ctx.fillText(shown, ctx.textAlign === "right" ? (size.gutter + size.plot) * r : x, AXIS / 2 * r);
      });
      facts.steps.forEach(step => { if (step) drawStep(ctx, r, step); });
    }
    function longTime(ps) {
      const [unit, length] = Words.unit(whole * facts.tick);
      const decimals = Math.max(0, Math.min(9, Math.ceil(Math.log10(length / Math.max(1, (state.t1 - state.t0) * facts.tick))) + 3));
      return `${(ps / length).toFixed(decimals)} ${unit}`;
    }
    /* A thin bar under the axis: the step that the figures are about. */
    function drawStep(ctx, r, [from, to]) {
      const a = Math.max(size.gutter, xAt(from)), b = Math.min(size.gutter + size.plot, xAt(to));
      if (b <= a) return;
      ctx.fillStyle = pal.focus;
      ctx.fillRect(a * r, (AXIS - 3) * r, (b - a) * r, 2 * r);
    }
    function drawBar(ctx, r) {
      const x = size.width - BAR, tall = Math.max(24, size.body * size.body / size.content);
      const y = AXIS + state.top / (size.content - size.body) * (size.body - tall);
      ctx.fillStyle = pal.lane;
      ctx.fillRect(x * r, AXIS * r, BAR * r, size.body * r);
      ctx.fillStyle = pal.muted;
      ctx.globalAlpha = 0.55;
      ctx.fillRect((x + 2) * r, y * r, (BAR - 4) * r, tall * r);
      ctx.globalAlpha = 1;
    }
    function drawMap() {
      const ctx = map.getContext("2d"), r = pal.ratio;
      const x = Math.round(size.gutter * r), width = Math.round(size.plot * r);
      if (!miniature) {
        miniature = document.createElement("canvas");
        miniature.width = width;
        miniature.height = map.height;
        const rows = facts.lanes.map(lane => lane.rows[0]);
        ViewerPaint.band(miniature.getContext("2d"), data, pal, { x: 0, y: 0, width, height: map.height, rows }, { t0: 0, t1: whole }, null);
      }
      ctx.fillStyle = pal.paper;
      ctx.fillRect(0, 0, map.width, map.height);
      ctx.drawImage(miniature, x, 0);
      const a = x + state.t0 / whole * width, b = Math.max(a + 2 * r, x + state.t1 / whole * width);
      ctx.fillStyle = pal.paper;
      ctx.globalAlpha = 0.7;
      ctx.fillRect(x, 0, a - x, map.height);
      ctx.fillRect(b, 0, x + width - b, map.height);
      ctx.globalAlpha = 1;
      ctx.strokeStyle = pal.focus;
      ctx.lineWidth = 1.5 * r;
      ctx.strokeRect(a + r, r, Math.max(r, b - a - 2 * r), map.height - 2 * r);
      ctx.fillStyle = pal.muted;
      ctx.font = `${11 * r}px ${pal.font}`;
      ctx.textAlign = "right";
      ctx.textBaseline = "middle";
      ctx.fillText("all", x - 8 * r, map.height / 2);
    }
    /* Where a span is drawn, in CSS pixels; null where its row is folded away. */
    function place(i) {
      const row = ViewerData.rowOf(data, i), line = state.lines.find(one => one.kind === "row" && one.row === row);
      if (!line) return null;
      const y = AXIS + line.y - state.top;
      return { left: xAt(data.begin[i]), start: xAt(data.begin[i] + data.wait[i]), right: xAt(ViewerData.endOf(data, i)), y, height: line.height };
    }
    function outline(ctx, i, colour, thick) {
      const at = place(i);
      if (!at || at.y + at.height < AXIS || at.y > size.height) return;
      const left = Math.max(size.gutter - 2, at.left), right = Math.min(size.gutter + size.plot + 2, Math.max(at.right, at.left + 2));
      if (right < left) return;
      ctx.strokeStyle = colour;
      ctx.lineWidth = thick;
      ctx.strokeRect(left, at.y, right - left, at.height);
    }
    function drawOver() {
      const ctx = over.getContext("2d"), r = pal.ratio;
      ctx.setTransform(r, 0, 0, r, 0, 0);
      ctx.clearRect(0, 0, size.width, size.height);
      ctx.save();
      ctx.beginPath();
      ctx.rect(size.gutter - 1, AXIS, size.plot + 2, size.body);
      ctx.clip();
      if (state.path) drawPath(ctx);
      if (state.arrows) drawArrows(ctx);
      if (state.chosen >= 0) {
        for (const i of [...ViewerData.members(data, data.instance[state.chosen])].slice(0, 4096)) outline(ctx, i, pal.ink, 1);
        outline(ctx, state.chosen, pal.focus, 2.5);
        if (isMessage(state.chosen)) arrow(ctx, data.instance[state.chosen]);
      }
      if (state.hover >= 0) outline(ctx, state.hover, pal.ink, 1.5);
      if (state.band) {
        const [a, b] = state.band;
        ctx.fillStyle = pal.focus;
        ctx.globalAlpha = 0.2;
        ctx.fillRect(Math.min(a, b), AXIS, Math.abs(b - a), size.body);
        ctx.globalAlpha = 1;
      }
      ctx.restore();
    }
    const isMessage = i => data.meanings[data.what[i]][3] <= -2;
    function arrow(ctx, number) {
      let send = -1, recv = -1;
      for (const i of ViewerData.members(data, number)) if (data.meanings[data.what[i]][3] === -2) send = i; else recv = i;
      if (send < 0 || recv < 0) return;
      const from = place(send), to = place(recv);
      if (!from || !to) return;
      const xa = from.start, ya = from.y + from.height / 2, xb = to.right, yb = to.y + to.height / 2;
      const bend = Math.max(12, Math.abs(xb - xa) / 3), tip = yb > ya ? 1 : -1;
      ctx.strokeStyle = ctx.fillStyle = pal.ink;
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
      const numbers = new Set();
      for (const line of state.lines) {
        const y = line.y - state.top;
        if (line.kind !== "row" || y + line.height < 0 || y > size.body) continue;
        const [low, high] = ViewerData.visible(data, line.row, state.t0, state.t1);
        for (let i = low; i < high; i++) if (isMessage(i)) {
          numbers.add(data.instance[i]);
          if (numbers.size > MOST_ARROWS) { say("too many messages for arrows here: zoom in"); return; }
        }
      }
      if (!numbers.size) say("no messages in this view");
      for (const number of numbers) arrow(ctx, number);
    }
    function drawPath(ctx) {
      ctx.strokeStyle = pal.path;
      ctx.lineWidth = 2;
      for (const path of facts.paths) {
        ctx.beginPath();
        let drawn = false;
        for (const i of path) {
          const at = place(i);
          if (!at) continue;
          const y = at.y + at.height / 2, left = Math.max(-1e5, at.start), right = Math.min(1e5, at.right);
          if (drawn) ctx.lineTo(left, y); else ctx.moveTo(left, y);
          ctx.lineTo(right, y);
          drawn = true;
        }
        ctx.stroke();
      }
    }

    /* ---- words about a span ---- */
    function tell(i) {
      const [name, , stageNumber, op, group, , choice] = data.meanings[data.what[i]], words = facts.words;
      const lane = ViewerData.laneOf(data, i), tick = facts.tick, size = facts.sizes[data.size[i]];
      const kind = op >= 0 ? words[op] : op === -2 ? "send" : op === -3 ? "recv" : "";
      const plain = words[name].replace(/_/g, "-");
      let what = kind && plain !== kind && !plain.startsWith(kind + " ") ? `${words[name]} (${kind})` : kind && plain === kind ? kind : words[name];
      if (group >= 0 && words[group]) what += ` on ${words[group]}`;
      const where = [facts.runs.length > 1 ? facts.runs[lane.run] : "", `rank ${lane.rank}`, lane.times > 1 ? `stands for ${Words.count(lane.times)} ranks` : "",
        stageNumber >= 0 ? `stage ${stageNumber}` : "", data.microbatch[i] ? `microbatch ${data.microbatch[i] - 1}` : ""].filter(Boolean).join(", ");
      const begin = data.begin[i] * tick, wait = data.wait[i] * tick, length = data.length[i] * tick;
      const when = [`start ${Words.exact(begin + wait)}, takes ${Words.time(length)}`, wait ? `after waiting ${Words.time(wait)}` : ""].filter(Boolean).join(", ");
      const bus = ViewerData.busbw(data, i), much = [];
      if (size >= 0 && (op !== -1 || size > 0)) much.push(Words.size(size));
      if (bus) much.push(`busbw ${Words.rate(bus)}`);
      else if (size > 0 && length) much.push(Words.rate(size / (length * 1e-12)));
      if (choice >= 0) much.push(words[choice]);
      return [what, where, when, much.join(", ")];
    }
    function showTip(i, x, y) {
      tip.hidden = i < 0;
      if (i < 0) return;
      tip.replaceChildren();
      tell(i).forEach((text, k) => { if (text) make("div", k ? "" : "what", tip, text); });
      const wide = tip.offsetWidth, tall = tip.offsetHeight;
      tip.style.left = `${Math.max(0, Math.min(x + 14, size.width - wide - 2))}px`;
      tip.style.top = `${y + 18 + tall > size.height + MAP && y > tall + 12 ? y - tall - 12 : y + 18}px`;
    }
    function say(text) { details.replaceChildren(); make("span", "muted", details, text); }
    function choose(i) {
      state.chosen = i;
      details.replaceChildren();
      if (i >= 0) tell(i).forEach((text, k) => { if (text) make("span", k ? "" : "what", details, text); });
      else hint();
      again();
    }
    function hint() {
      say(matchMedia("(pointer: coarse)").matches
        ? "Pinch to zoom, drag sideways to move, tap a box for its figures."
        : "Wheel zooms at the pointer, drag moves, shift and drag zooms to a stretch, double-click shows all. Keys: ← → ↑ ↓, + −, 0, / to search, n p for matches, a for arrows, c for the critical path.");
    }

    /* ---- search, legend, groups ---- */
    function litBy(test) {
      const lit = new Uint8Array(facts.meanings.length);
      let any = 0;
      facts.meanings.forEach((row, k) => { if (test(row)) { lit[k] = 1; any = 1; } });
      return { lit, any };
    }
    function search(text) {
      const wanted = text.trim().toLowerCase();
      state.found = state.lit = null;
      state.at = -1;
      counter.textContent = "";
      const rank = /^rank\s+(\d+)$/.exec(wanted);
      if (rank) goToRank(Number(rank[1]));
      else if (wanted) {
        const hits = Uint8Array.from(facts.words, one => one.toLowerCase().includes(wanted) ? 1 : 0);
        const { lit } = litBy(row => hits[row[0]] || (row[3] >= 0 && hits[row[3]]) || (row[4] >= 0 && hits[row[4]]));
        state.lit = lit;
        let total = 0;
        for (let i = 0; i < data.count; i++) total += lit[data.what[i]];
        state.found = total;
        counter.textContent = total ? `${Words.count(total)} ${total === 1 ? "span" : "spans"}` : "nothing found";
      }
      changed();
    }
    function goToRank(rank) {
      const at = facts.lanes.findIndex(lane => lane.rank === rank);
      if (at < 0) { counter.textContent = "no such rank shown"; return; }
      const line = state.lines.find(one => one.kind === "row" && one.lane === at);
      if (!line) { state.closed.clear(); fit(); goToRank(rank); return; }
      state.top = line.y - 40;
      clampTop();
      counter.textContent = `rank ${rank}`;
    }
    /* Goes to the next match by time, after the one shown last. */
    function next(step) {
      if (!state.lit || !state.found) return;
      const from = state.at >= 0 ? data.begin[state.at] : state.t0 - 1;
      let best = -1;
      for (let i = 0; i < data.count; i++) {
        if (!state.lit[data.what[i]] || i === state.at) continue;
        const later = step > 0 ? data.begin[i] > from || (data.begin[i] === from && i > state.at) : data.begin[i] < from || (data.begin[i] === from && i < state.at);
        if (!later) continue;
        const better = best < 0 || (step > 0 ? data.begin[i] < data.begin[best] : data.begin[i] >= data.begin[best]);
        if (better) best = i;
      }
      if (best < 0) { say(step > 0 ? "no later match" : "no earlier match"); return; }
      state.at = best;
      reveal(best);
    }
    function reveal(i) {
      const length = Math.max(20, ViewerData.endOf(data, i) - data.begin[i]);
      const span = Math.min(whole, Math.max(length * 12, Math.min(state.t1 - state.t0, length * 400)));
      const t0 = Math.max(0, Math.min(data.begin[i] + length / 2 - span / 2, whole - span));
      if (!place(i)) { state.closed.clear(); fit(); }
      const row = ViewerData.rowOf(data, i), line = state.lines.find(one => one.kind === "row" && one.row === row);
      if (line && (line.y < state.top || line.y + line.height > state.top + size.body)) { state.top = line.y - size.body / 2; clampTop(); }
      setView(t0, t0 + span);
      choose(i);
    }
    const box = make("input", "", tools), counter = make("span", "count", tools);
    box.type = "search";
    box.placeholder = "search names, “rank 3”";
    box.setAttribute("aria-label", "search spans by name");
    box.addEventListener("input", () => search(box.value));
    box.addEventListener("keydown", event => {
      if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") { box.value = ""; search(""); main.focus(); }
    });
    const kinds = ViewerLines.choices(facts.lanes);
    if (kinds.length > 1) {
      const select = make("select", "", tools);
      select.setAttribute("aria-label", "group ranks by");
      for (const kind of kinds) { const option = make("option", "", select, kind === "none" ? "no groups" : `by ${kind}`); option.value = kind; }
      select.value = state.by;
      select.addEventListener("change", () => { state.by = select.value; state.closed.clear(); state.top = 0; fit(); });
    }
    function button(text, title, act) {
      const one = make("button", "", tools, text);
      one.type = "button";
      one.title = title;
      one.setAttribute("aria-label", title);
      one.addEventListener("click", () => act(one));
      return one;
    }
    button("−", "zoom out", () => zoom(2));
    button("+", "zoom in", () => zoom(0.5));
    button("all", "show all of the time", () => setView(0, whole));
    if (facts.steps[0]) button("step", "show the measured step", () => setView(...facts.steps[0]));
    function toggle(name, one) {
      state[name] = !state[name];
      one.setAttribute("aria-pressed", String(state[name]));
      choose(state.chosen);
    }
    const pressed = {};
    if (facts.meanings.some(row => row[3] <= -2)) pressed.arrows = button("arrows", "arrows from send to recv", one => toggle("arrows", one));
    if (facts.paths.some(path => path.length)) pressed.path = button("critical path", "the chain that sets the step time", one => toggle("path", one));
    for (const name in pressed) pressed[name].setAttribute("aria-pressed", "false");
    const present = new Set(data.family);
    facts.looks.forEach((look, k) => {
      if (!present.has(k)) return;
      const names = new Set(facts.meanings.filter(row => row[1] === k && row[3] >= 0).map(row => facts.words[row[3]]));
      const one = make("button", "look", legend);
      one.type = "button";
      one.title = "click to see only these";
      make("i", "", one).style.background = look.fill;
      make("span", "", one, [...names].join(", ") || look.label);
      one.setAttribute("aria-pressed", "false");
      one.addEventListener("click", () => {
        const on = one.getAttribute("aria-pressed") !== "true";
        for (const other of legend.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
        one.setAttribute("aria-pressed", String(on));
        box.value = counter.textContent = "";
        state.lit = on ? litBy(row => row[1] === k).lit : null;
        changed();
      });
    });
    if (data.wait.some(Boolean)) { const one = make("span", "look", legend); make("i", "waits", one); make("span", "", one, "waiting"); }
    const idle = make("span", "look", legend);
    make("i", "idle", idle);
    make("span", "", idle, "idle");

    /* ---- hands ---- */
    const pointers = new Map();
    let moved = 0, drag = null;
    const spot = event => { const box = main.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    main.addEventListener("pointerdown", event => {
      const [x, y] = spot(event);
      pointers.set(event.pointerId, [x, y]);
      main.setPointerCapture(event.pointerId);
      moved = 0;
      const onBar = size.content > size.body && x > size.width - BAR - 6;
      drag = { kind: onBar ? "bar" : event.shiftKey && x > size.gutter ? "band" : x < size.gutter ? "gutter" : "pan", x, y };
    });
    main.addEventListener("pointermove", event => {
      const [x, y] = spot(event), last = pointers.get(event.pointerId);
      if (!last) { hoverAt(x, y, event); return; }
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      pointers.set(event.pointerId, [x, y]);
      moved += Math.abs(x - last[0]) + Math.abs(y - last[1]);
      if (others.length) { pinch(others[0], last, [x, y]); return; }
      if (!drag) return;
      if (drag.kind === "bar") { state.top += (y - last[1]) * size.content / size.body; clampTop(); changed(); }
      else if (drag.kind === "band") { state.band = [drag.x, x]; again(); }
      else {
        if (drag.kind === "pan") pan((last[0] - x) / size.plot);
        if (event.pointerType !== "touch" && size.content > size.body) { state.top += last[1] - y; clampTop(); changed(); }
      }
      if (moved > 4) showTip(-1);
    });
    function pinch(other, before, after) {
      const was = Math.max(8, Math.abs(before[0] - other[0])), now = Math.max(8, Math.abs(after[0] - other[0]));
      zoom(was / now, timeAt((after[0] + other[0]) / 2));
    }
    function release(event) {
      const known = pointers.delete(event.pointerId), [x, y] = spot(event);
      if (known && drag && drag.kind === "band" && state.band) {
        const [a, b] = state.band.map(timeAt).sort((p, q) => p - q);
        state.band = null;
        setView(a, b);
      } else if (known && moved < 5 && event.type === "pointerup") tapped(x, y);
      state.band = null;
      if (!pointers.size) drag = null;
    }
    main.addEventListener("pointerup", release);
    main.addEventListener("pointercancel", release);
    main.addEventListener("pointerleave", () => { state.hover = -1; showTip(-1); again(); });
    main.addEventListener("dblclick", () => setView(0, whole));
    function hoverAt(x, y) {
      const line = lineAt(y), i = spanUnder(x, y);
      main.style.cursor = line && line.kind === "head" ? "pointer" : i >= 0 ? "crosshair" : "grab";
      if (i !== state.hover) { state.hover = i; again(); }
      showTip(i, x, y + MAP + 6);
    }
    function tapped(x, y) {
      const line = lineAt(y);
      if (line && line.kind === "head") {
        if (state.closed.has(line.key)) state.closed.delete(line.key); else state.closed.add(line.key);
        fit();
        return;
      }
      const i = spanUnder(x, y);
      choose(i);
      if (matchMedia("(pointer: coarse)").matches) showTip(-1);
    }
    main.addEventListener("wheel", event => {
      const [x] = spot(event), sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      const all = state.t1 - state.t0 >= whole;
      if (x < size.gutter || x > size.gutter + size.plot) {
        if (size.content <= size.body) return;
        state.top += event.deltaY;
        clampTop();
        changed();
      } else if (Math.abs(sideways) > Math.abs(event.deltaY) || event.shiftKey) {
        if (all) return;
        pan(sideways / size.plot);
      } else {
        if (all && event.deltaY > 0) return;
        const lines = event.deltaMode === 1 ? 33 : 1;
        zoom(Math.min(4, Math.max(0.25, 1.0015 ** (event.deltaY * lines))), timeAt(x));
      }
      showTip(-1);
      event.preventDefault();
    }, { passive: false });
    let mapping = false;
    function toMap(event) {
      const box = map.getBoundingClientRect(), share = (event.clientX - box.left - size.gutter) / size.plot;
      const span = state.t1 - state.t0, t0 = Math.max(0, Math.min(share * whole - span / 2, whole - span));
      setView(t0, t0 + span);
    }
    map.addEventListener("pointerdown", event => { mapping = true; map.setPointerCapture(event.pointerId); toMap(event); });
    map.addEventListener("pointermove", event => { if (mapping) toMap(event); });
    for (const kind of ["pointerup", "pointercancel"]) map.addEventListener(kind, () => { mapping = false; });
    const keys = {
      ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.6), "=": () => zoom(0.6),
      "-": () => zoom(1 / 0.6), _: () => zoom(1 / 0.6), 0: () => setView(0, whole), Home: () => pan(-1e9), End: () => pan(1e9),
      ArrowUp: () => scroll(-40), ArrowDown: () => scroll(40), PageUp: () => scroll(-size.body), PageDown: () => scroll(size.body),
      "/": () => box.focus(), n: () => next(1), p: () => next(-1), f: () => { if (state.chosen >= 0) reveal(state.chosen); },
      a: () => pressed.arrows && toggle("arrows", pressed.arrows), c: () => pressed.path && toggle("path", pressed.path),
      Escape: () => { choose(-1); if (state.lit) { box.value = ""; search(""); } },
    };
    function scroll(by) {
      if (size.content <= size.body) return false;
      const before = state.top;
      state.top += by;
      clampTop();
      changed();
      return state.top !== before;
    }
    main.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      if (keys[event.key]() === false) return;
      event.preventDefault();
    });

    new ResizeObserver(() => { if (stage.clientWidth !== size.width) fit(); }).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fit);
    document.addEventListener("themechange", fit);
    fit();
    hint();
    paint();
    return {
      data, setView, zoom, search, next, choose, reveal, tell, place, spanUnder, pan,
      view: () => ({ t0: state.t0, t1: state.t1, top: state.top }), size: () => ({ ...size }), chosen: () => state.chosen,
      lines: () => state.lines,
      redraw() { const before = performance.now(); dirty = true; paint(); main.getContext("2d").getImageData(0, 0, 1, 1); return performance.now() - before; },
    };
  }

  return { start };
})();
