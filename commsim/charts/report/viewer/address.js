"use strict";
/* The view in the address of the page: what is looked at comes back by its link. */

function keepAddress(c, hash) {
  let waiting = 0;
  function told() {
    const { state } = c, all = state.t0 === 0 && state.t1 === c.whole;
    return {
      view: all ? null : `${Math.round(state.t0)}-${Math.round(state.t1)}`,
      top: state.top ? String(Math.round(state.top)) : null,
      by: state.by === ViewerLines.usual(c.facts.lanes) ? null : state.by,
      range: state.range ? `${Math.round(state.range.t0)}-${Math.round(state.range.t1)}-${state.range.rows[0]}-${state.range.rows[state.range.rows.length - 1]}` : null,
      find: c.box.value || null,
      show: Object.keys(c.pressed).filter(name => state[name]).join(" ") || null,
    };
  }
  function note() {
    clearTimeout(waiting);
    waiting = setTimeout(() => hash.put(told()), 250);
  }
  const numbers = text => text && /^[\d-]+$/.test(text) ? text.split("-").map(Number) : [];
  /* Takes what the address says, as far as it can be; it may be anybody's. */
  function apply() {
    const given = hash.get(), [t0, t1] = numbers(given.get("view")), range = numbers(given.get("range"));
    const by = given.get("by");
    if (by && by !== c.state.by && ViewerLines.choices(c.facts.lanes).includes(by)) c.groupBy(by);
    if (t1 > t0) c.setView(t0, t1);
    const find = given.get("find");
    if (find && find !== c.box.value) { c.box.value = find.slice(0, 200); c.search(c.box.value); }
    for (const name of (given.get("show") || "").split(" ")) if (c.pressed[name] && !c.state[name]) c.toggle(name, c.pressed[name]);
    if (range.length === 4 && range[1] > range[0]) {
      const rows = c.state.lines.filter(line => line.kind === "row" && line.row >= range[2] && line.row <= range[3]).map(line => line.row);
      if (rows.length) c.showRange({ t0: range[0], t1: Math.min(range[1], c.whole), rows });
    }
    const top = Number(given.get("top"));
    if (top > 0) { c.state.top = top; c.clampTop(); c.changed(); }
  }
  Object.assign(c, { noteAddress: note });
  apply();
  document.addEventListener("viewhash", apply, { signal: c.until });
}
