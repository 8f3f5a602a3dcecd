"use strict";
/* Searching for spans and going to them. */

function findSpans(c) {
  /* Marks the meanings that pass a test: what is not marked is drawn pale. */
  const litBy = test => Uint8Array.from(c.facts.meanings, row => test(row) ? 1 : 0);
  function search(text) {
    const wanted = text.trim().toLowerCase();
    c.state.found = c.state.lit = null;
    c.state.at = -1;
    c.counter.textContent = "";
    const rank = /^rank\s+(\d+)$/.exec(wanted);
    if (rank) goToRank(Number(rank[1]));
    else if (wanted) {
      const hits = Uint8Array.from(c.facts.words, one => one.toLowerCase().includes(wanted) ? 1 : 0);
      const lit = c.litBy(row => hits[row[0]] || (row[3] >= 0 && hits[row[3]]) || (row[4] >= 0 && hits[row[4]]));
      c.state.lit = lit;
      let total = 0;
      for (let i = 0; i < c.data.count; i++) total += lit[c.data.what[i]];
      c.state.found = total;
      c.counter.textContent = total ? `${Words.count(total)} ${total === 1 ? "span" : "spans"}` : "nothing found";
    }
    c.changed();
  }
  function goToRank(rank) {
    const at = c.facts.lanes.findIndex(lane => lane.rank === rank);
    if (at < 0) { c.counter.textContent = "no such rank shown"; return; }
    const line = c.state.lines.find(one => one.kind === "row" && one.lane === at);
    if (!line) { c.state.closed.clear(); c.fit(); goToRank(rank); return; }
    c.state.top = line.y - 40;
    c.clampTop();
    c.counter.textContent = `rank ${rank}`;
  }
  /* Goes to the next match by time, after the one shown last. */
  function next(step) {
    if (!c.state.lit || !c.state.found) return;
    const from = c.state.at >= 0 ? c.data.begin[c.state.at] : c.state.t0 - 1;
    let best = -1;
    for (let i = 0; i < c.data.count; i++) {
      if (!c.state.lit[c.data.what[i]] || i === c.state.at) continue;
      const later = step > 0 ? c.data.begin[i] > from || (c.data.begin[i] === from && i > c.state.at) : c.data.begin[i] < from || (c.data.begin[i] === from && i < c.state.at);
      if (!later) continue;
      const better = best < 0 || (step > 0 ? c.data.begin[i] < c.data.begin[best] : c.data.begin[i] >= c.data.begin[best]);
      if (better) best = i;
    }
    if (best < 0) { c.say(step > 0 ? "no later match" : "no earlier match"); return; }
    c.state.at = best;
    c.reveal(best);
  }
  function reveal(i) {
    const length = Math.max(20, ViewerData.endOf(c.data, i) - c.data.begin[i]);
    const span = Math.min(c.whole, Math.max(length * 12, Math.min(c.state.t1 - c.state.t0, length * 400)));
    const t0 = Math.max(0, Math.min(c.data.begin[i] + length / 2 - span / 2, c.whole - span));
    if (!c.place(i)) { c.state.closed.clear(); c.fit(); }
    const line = c.state.lineOf.get(ViewerData.rowOf(c.data, i));
    if (line && (line.y < c.state.top || line.y + line.height > c.state.top + c.size.body)) { c.state.top = line.y - c.size.body / 2; c.clampTop(); }
    c.setView(t0, t0 + span);
    c.choose(i);
  }

  Object.assign(c, { litBy, search, next, reveal });
}
