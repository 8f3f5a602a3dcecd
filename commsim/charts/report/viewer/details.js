"use strict";
/* What the viewer says of a span, beside the pointer and below the rows. */

function tellSpans(c) {
  function tell(i) {
    const [name, , stageNumber, op, group, , choice] = c.data.meanings[c.data.what[i]], words = c.facts.words;
    const lane = ViewerData.laneOf(c.data, i), tick = c.facts.tick, size = c.facts.sizes[c.data.size[i]];
    const kind = op >= 0 ? words[op] : op === -2 ? "send" : op === -3 ? "recv" : "";
    const plain = words[name].replace(/_/g, "-");
    let what = kind && plain !== kind && !plain.startsWith(kind + " ") ? `${words[name]} (${kind})` : kind && plain === kind ? kind : words[name];
    if (group >= 0 && words[group]) what += ` on ${words[group]}`;
    const where = [c.facts.runs.length > 1 ? c.facts.runs[lane.run] : "", `rank ${lane.rank}`, lane.times > 1 ? `stands for ${Words.count(lane.times)} ranks` : "",
      stageNumber >= 0 ? `stage ${stageNumber}` : "", c.data.microbatch[i] ? `microbatch ${c.data.microbatch[i] - 1}` : ""].filter(Boolean).join(", ");
    const begin = c.data.begin[i] * tick, wait = c.data.wait[i] * tick, length = c.data.length[i] * tick;
    const when = [`start ${Words.exact(begin + wait)}, takes ${Words.time(length)}`, wait ? `after waiting ${Words.time(wait)}` : ""].filter(Boolean).join(", ");
    const bus = ViewerData.busbw(c.data, i), much = [];
    if (size >= 0 && (op !== -1 || size > 0)) much.push(Words.size(size));
    if (bus) much.push(`busbw ${Words.rate(bus)}`);
    else if (size > 0 && length) much.push(Words.rate(size / (length * 1e-12)));
    if (choice >= 0) much.push(words[choice]);
    const by = ViewerData.launcher(c.data, i), launched = ViewerData.launched(c.data, i);
    const cause = by >= 0 ? `launched by ${words[c.data.meanings[c.data.what[by]][0]]}, ${Words.time(Math.max(0, c.data.begin[i] + c.data.wait[i] - ViewerData.endOf(c.data, by)) * tick)} after its end`
      : launched.length ? `launched ${launched.length === 1 ? words[c.data.meanings[c.data.what[launched[0]]][0]] : `${launched.length} kernels`}` : "";
    return [what, where, when, much.join(", "), cause];
  }
  function showTip(i, x, y) {
    c.tip.hidden = i < 0;
    if (i < 0) return;
    c.tip.replaceChildren();
    c.tell(i).forEach((text, k) => { if (text) make("div", k ? "" : "what", c.tip, text); });
    const wide = c.tip.offsetWidth, tall = c.tip.offsetHeight;
    c.tip.style.left = `${Math.max(0, Math.min(x + 14, c.size.width - wide - 2))}px`;
    c.tip.style.top = `${y + 18 + tall > c.size.height + MAP && y > tall + 12 ? y - tall - 12 : y + 18}px`;
  }
  function say(text) { c.details.replaceChildren(); make("span", "muted", c.details, text); }
  function choose(i) {
    c.state.chosen = i;
    c.details.replaceChildren();
    if (i >= 0) c.tell(i).forEach((text, k) => { if (text) make("span", k ? "" : "what", c.details, text); });
    else c.hint();
    c.again();
  }
  function hint() {
    c.say(matchMedia("(pointer: coarse)").matches
      ? "Pinch to zoom, drag sideways to move, tap a box for its figures."
      : "Wheel zooms at the pointer, drag moves, shift and drag zooms to a stretch, alt and drag (or m) measures, double-click shows all. Keys: ← → ↑ ↓, + −, 0, / to search, n p for matches, a for arrows, c for the critical path.");
  }

  Object.assign(c, { tell, showTip, say, choose, hint });
}
