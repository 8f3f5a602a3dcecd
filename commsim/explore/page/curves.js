"use strict";
/* Busbw against size, a curve per algorithm, drawn to the width that there is. */

const Curves = (() => {
  const NS = "http://www.w3.org/2000/svg", HEIGHT = 300, LEFT = 58, RIGHT = 14, TOP = 12, BOTTOM = 40;
  const NAMES = { nccl: "NCCL", gloo: "Gloo", ideal: "the textbook" };
  const LOOKS = { Ring: 0, Tree: 1, NVLS: 2, CollNetDirect: 3, NVLSTree: 4, CollNetChain: 5, PAT: 6 }; // as in charts of bench

  function svg(tag, parent, attributes, text) {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    parent.appendChild(element);
    return element;
  }

  const look = (name, at) => `line${(LOOKS[name] ?? at) % 8}`;

  /* Powers of ten between two rates, with 2 and 5 where there are few. */
  function marks(low, high) {
    const every = high / low < 200 ? [1, 2, 5] : [1], found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const digit of every) { const value = digit * 10 ** power; if (value >= low && value <= high) found.push(value); }
    return found;
  }

  function sentence(answer) {
    const names = Object.keys(answer.curves);
    if (names.length < 2) return "";
    const best = size => names.map(name => [name, answer.curves[name].find(row => row.size === size)]).filter(([, row]) => row)
      .reduce((a, b) => (b[1].time_us < a[1].time_us ? b : a))[0];
    const sizes = [...new Set(names.flatMap(name => answer.curves[name].map(row => row.size)))].sort((a, b) => a - b);
    const runs = [];
    for (const size of sizes) { const name = best(size); if (!runs.length || runs[runs.length - 1][0] !== name) runs.push([name, size]); }
    if (runs.length === 1) return `${runs[0][0]} is fastest at every size.`;
    return runs.map(([name, size], at) => at ? `${name} from ${Words.size(size)} on` : `${name} is fastest for small sizes`).join(", ") + ".";
  }

  function draw(place, answer) {
    place.replaceChildren();
    const names = Object.keys(answer.curves), rows = names.flatMap(name => answer.curves[name]).filter(row => row.busbw_gbs > 0);
    if (!rows.length) { make("p", "muted", place, "One GPU has nobody to talk to."); return; }
    const key = make("p", "key lines", place);
    names.forEach((name, at) => { const one = make("span", "", key); make("i", look(name, at), one); one.append(name); });
    if (answer.chosen.length) { const one = make("span", "", key); make("b", "ring", one); one.append(`${NAMES[answer.system.library] || answer.system.library} takes`); }
    const width = Math.max(260, place.clientWidth), sizes = [...new Set(rows.map(row => row.size))].sort((a, b) => a - b);
    const rates = rows.map(row => row.busbw_gbs), low = Math.max(Math.min(...rates), Math.max(...rates) / 1e5), high = Math.max(...rates) * 1.3;
    const first = Math.log2(sizes[0]), last = Math.max(first + 1, Math.log2(sizes[sizes.length - 1]));
    const x = size => LEFT + (Math.log2(size) - first) / (last - first) * (width - LEFT - RIGHT);
    const y = rate => TOP + Math.log(high / Math.max(rate, low)) / Math.log(high / low) * (HEIGHT - TOP - BOTTOM);
    const picture = svg("svg", place, { width, height: HEIGHT, class: "curves", role: "img", "aria-label": `bus bandwidth against size of ${answer.op}` });
    for (const rate of marks(low, high)) {
      svg("line", picture, { x1: LEFT, x2: width - RIGHT, y1: y(rate), y2: y(rate), class: "grid" });
      svg("text", picture, { x: LEFT - 8, y: y(rate) + 4, class: "tick end" }, String(Number(rate.toPrecision(2))));
    }
    const shown = Math.max(1, Math.ceil(sizes.length / ((width - LEFT - RIGHT) / 64)));
    sizes.forEach((size, at) => { if (at % shown === 0) svg("text", picture, { x: x(size), y: HEIGHT - BOTTOM + 18, class: "tick middle" }, Words.size(size).replace(" ", "")); });
    svg("text", picture, { x: LEFT, y: HEIGHT - 6, class: "tick" }, "size, per rank");
    svg("text", picture, { transform: `translate(13 ${(HEIGHT - BOTTOM) / 2 + 30}) rotate(-90)`, class: "tick" }, "busbw (GB/s)");
    names.forEach((name, at) => {
      const points = answer.curves[name].filter(row => row.busbw_gbs > 0).map(row => `${x(row.size).toFixed(1)},${y(row.busbw_gbs).toFixed(1)}`);
      svg("polyline", picture, { points: points.join(" "), class: `curve ${look(name, at)}` });
    });
    for (const row of answer.chosen) if (row.busbw_gbs > 0) svg("circle", picture, { cx: x(row.size), cy: y(row.busbw_gbs), r: 4, class: "taken" });
    point(place, picture, answer, sizes, x);
  }

  /* What each algorithm does at the size under the pointer. */
  function point(place, picture, answer, sizes, x) {
    const tip = make("div", "tip", place), rule = svg("line", picture, { y1: TOP, y2: HEIGHT - BOTTOM, class: "rule" });
    tip.hidden = true;
    rule.setAttribute("visibility", "hidden");
    picture.addEventListener("pointermove", event => {
      const at = event.clientX - picture.getBoundingClientRect().left;
      const size = sizes.reduce((best, one) => (Math.abs(x(one) - at) < Math.abs(x(best) - at) ? one : best));
      tip.replaceChildren();
      make("div", "what", tip, Words.size(size));
      const found = Object.entries(answer.curves).map(([name, rows]) => [name, rows.find(row => row.size === size)]).filter(([, row]) => row);
      for (const [name, row] of found.sort((a, b) => a[1].time_us - b[1].time_us))
        make("div", "", tip, `${name}${row.proto ? ` ${row.proto}` : ""}: ${Words.time(row.time_us * 1e6)}, ${Number(row.busbw_gbs.toPrecision(3))} GB/s`);
      rule.setAttribute("x1", x(size));
      rule.setAttribute("x2", x(size));
      rule.setAttribute("visibility", "visible");
      tip.hidden = false;
      tip.style.left = `${Math.max(0, Math.min(x(size) + 12, place.clientWidth - tip.offsetWidth - 4))}px`;
      tip.style.top = "40px";
    });
    picture.addEventListener("pointerleave", () => { tip.hidden = true; rule.setAttribute("visibility", "hidden"); });
  }

  return { draw, sentence };
})();
