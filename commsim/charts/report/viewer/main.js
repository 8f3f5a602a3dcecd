"use strict";
/* The viewer: a canvas that shows every span of a run, with a minimap, a search and details on demand.

   All its parts share one object `c`: the data, the elements, the view, and what each part adds. */

const AXIS = 24, MAP = 34, BAR = 10; // CSS pixels: time axis, minimap, scroll bar
const SHORTEST = 20; // ticks that the view never falls below

function make(tag, name, parent, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

const Viewer = {
  async start(root, facts, hash) {
    const note = make("p", "busy", root, `unpacking ${Words.count(facts.spans)} spans …`);
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const data = await ViewerData.load(facts);
    note.remove();
    root.viewer = Viewer.build(root, data, hash);
    root.dataset.ready = "1";
  },

  build(root, data, hash) {
    const facts = data.facts, c = { root, data, facts, whole: facts.whole || facts.reach, pal: null, miniature: null };
    c.size = { width: 0, height: 0, gutter: 0, plot: 1, body: 0, content: 0 };
    const by = ViewerLines.usual(facts.lanes);
    c.state = {
      t0: 0, t1: c.whole, top: 0, by, closed: ViewerLines.folded(facts, by), lit: null,
      hover: -1, chosen: -1, arrows: false, path: false, measure: false, band: null, range: null, found: null, at: -1, lines: [], lineOf: new Map(),
    };
    addElements(c);
    moveView(c);
    drawRows(c);
    drawOverlay(c);
    tellSpans(c);
    measureRanges(c);
    takePictures(c, () => (document.querySelector("h1") || document).textContent || "");
    findSpans(c);
    makeTools(c);
    useHands(c);
    keepPainted(c);
    const gone = new AbortController(), until = { signal: gone.signal };
    const width = new ResizeObserver(() => { if (c.stage.clientWidth !== c.size.width) c.fit(); });
    width.observe(c.stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", c.fit, until);
    document.addEventListener("themechange", () => { c.fit(); c.paint(); }, until);
    c.fit();
    c.hint();
    c.until = gone.signal;
    if (hash) keepAddress(c, hash);
    c.paint();
    return {
      data, setView: c.setView, choose: c.choose, reveal: c.reveal, tell: c.tell, place: c.place,
      view: () => ({ t0: c.state.t0, t1: c.state.t1, top: c.state.top }), size: () => ({ ...c.size }),
      chosen: () => c.state.chosen, lines: () => c.state.lines, redraw: c.redraw, svg: c.svg, png: c.png, showRange: c.showRange, inside: c.inside, range: () => c.state.range,
      close: () => { gone.abort(); width.disconnect(); }, // nothing holds it any more
    };
  },
};

function addElements(c) {
  c.tools = make("div", "tools", c.root);
  c.legend = make("div", "legend", c.root);
  c.stage = make("div", "stage", c.root);
  c.map = make("canvas", "map", c.stage);
  c.main = make("canvas", "main", c.stage);
  c.over = make("canvas", "over", c.stage);
  c.tip = make("div", "tip", c.stage);
  c.details = make("div", "details", c.root);
  c.range = make("div", "range", c.root);
  c.range.hidden = true;
  c.tip.hidden = true;
  c.details.setAttribute("aria-live", "polite");
  c.main.tabIndex = 0;
  c.main.setAttribute("role", "application");
  c.main.setAttribute("aria-label", `timeline of ${Words.count(c.facts.spans)} spans; arrow keys move, plus and minus zoom, slash searches`);
}

/* Painting when something changed, once per frame. */
function keepPainted(c) {
  let dirty = true, waiting = 0;
  const noted = () => { if (c.noteAddress) c.noteAddress(); };
  function again() { if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; paint(); }); }
  function changed() { dirty = true; again(); }
  function paint() {
    if (!c.pal || !c.size.width) return;
    if (dirty) { c.drawMain(); c.drawMap(); dirty = false; }
    c.drawOver();
    noted();
  }
  /* Draws all at once and waits for the pixels; returns the milliseconds that it took. */
  function redraw() {
    const before = performance.now();
    dirty = true;
    paint();
    c.main.getContext("2d").getImageData(0, 0, 1, 1);
    return performance.now() - before;
  }

  function fit() {
    const ratio = Math.min(3, window.devicePixelRatio || 1), width = c.stage.clientWidth;
    if (!width) return;
    const made = ViewerLines.build(c.facts, c.state.by, c.state.closed, Math.max(260, Math.min(900, innerHeight * 0.62)));
    c.state.lines = made.lines;
    c.state.lineOf = new Map(made.lines.filter(line => line.kind === "row").map(line => [line.row, line]));
    const body = Math.min(made.height, Math.max(260, innerHeight * 0.78));
    const context = c.main.getContext("2d");
    context.font = `12px ${getComputedStyle(c.stage).fontFamily}`;
    const widest = made.lines.reduce((most, line) => line.kind === "row" ? Math.max(most, context.measureText(line.label).width, 0.92 * context.measureText(line.name).width) : most, 34);
    const gutter = Math.min(widest + 12, width < 600 ? 76 : width < 1000 ? 140 : 200);
    const plot = width - gutter - (made.height > body ? BAR + 4 : 0);
    c.size = { width, height: AXIS + body, gutter, plot, body, content: made.height };
    for (const [canvas, tall] of [[c.main, c.size.height], [c.over, c.size.height], [c.map, MAP]]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(tall * ratio);
      canvas.style.height = `${tall}px`;
    }
    c.pal = ViewerPaint.palette(c.facts.looks, context, ratio, getComputedStyle(c.stage).fontFamily);
    c.miniature = null;
    c.clampTop();
    changed();
  }
  Object.assign(c, { again, changed, paint, redraw, fit });
}

/* Which stretch of time and which rows are in view, and where that puts things (CSS pixels). */
function moveView(c) {
  const clampTop = () => { c.state.top = Math.max(0, Math.min(c.state.top, c.size.content - c.size.body)); };
  function setView(t0, t1) {
    const span = Math.min(c.whole, Math.max(Math.min(c.whole, SHORTEST), t1 - t0));
    c.state.t0 = Math.max(0, Math.min(t0 + (t1 - t0 - span) / 2, c.whole - span));
    c.state.t1 = c.state.t0 + span;
    c.changed();
  }
  /* Keeps time `t` where it is on the page. */
  function zoom(factor, t = (c.state.t0 + c.state.t1) / 2) {
    const span = c.state.t1 - c.state.t0, share = (t - c.state.t0) / span;
    const kept = Math.min(c.whole, Math.max(SHORTEST, span * factor));
    const t0 = Math.max(0, Math.min(t - share * kept, c.whole - kept));
    setView(t0, t0 + kept);
  }
  function pan(share) {
    const span = c.state.t1 - c.state.t0, t0 = Math.max(0, Math.min(c.state.t0 + share * span, c.whole - span));
    setView(t0, t0 + span);
  }
  const timeAt = x => c.state.t0 + (x - c.size.gutter) / c.size.plot * (c.state.t1 - c.state.t0);
  const xAt = t => c.size.gutter + (t - c.state.t0) / (c.state.t1 - c.state.t0) * c.size.plot;
  function lineAt(y) {
    const inside = y - AXIS + c.state.top;
    return c.state.lines.find(line => inside >= line.y && inside < line.y + line.height + (line.kind === "head" ? 0 : 1)) || null;
  }
  function spanUnder(x, y) {
    const line = lineAt(y);
    if (!line || line.kind !== "row" || x < c.size.gutter || x > c.size.gutter + c.size.plot) return -1;
    return ViewerData.spanAt(c.data, line.row, timeAt(x), 2 * (c.state.t1 - c.state.t0) / c.size.plot);
  }
  Object.assign(c, { clampTop, setView, zoom, pan, timeAt, xAt, lineAt, spanUnder });
}
