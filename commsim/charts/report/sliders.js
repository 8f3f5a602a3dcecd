"use strict";
/* Sliders that choose one of the runs in the page: its headline, figures, sections and timeline. */

const Sliders = (() => {
  const SHOWN = ["breakdown", "bubble", "limits", "waits", "bandwidth", "links", "memory", "path"];

  async function start(place, facts) {
    const s = { facts: facts.sliders, places: facts.sliders.map(one => one.given), base: null, shown: -1 };
    const held = JSON.parse(new TextDecoder().decode(await ViewerData.inflate(taken("pages"))));
    s.pages = held.pages.map(page => ({ ...page, sections: page.sections.map(([key, at]) => held.sections[key][at]) }));
    s.given = pointAt(s, s.places);
    s.base = remember();
    s.inputs = [...place.querySelectorAll("input[type=range]")];
    s.sparks = [...place.querySelectorAll(".spark")];
    s.outcome = place.querySelector(".outcome");
    s.again = place.querySelector("#as-given");
    s.inputs.forEach((input, at) => input.addEventListener("input", () => go(s, s.places.map((p, k) => k === at ? Number(input.value) : p))));
    s.again.addEventListener("click", () => go(s, s.facts.map(one => one.given)));
    new ResizeObserver(() => curves(s)).observe(place);
    place.sliders = { go: places => go(s, places), point: () => s.shown, count: s.pages.length };
    document.addEventListener("viewhash", () => { const at = fromHash(s); if (at) go(s, at, true); });
    await go(s, fromHash(s) || s.places);
    place.dataset.ready = "1";
  }

  function taken(key) {
    const element = document.querySelector(`script[data-what-if="${key}"]`);
    return element ? element.textContent : "";
  }
  /* The last slider moves first, as the runs were written. */
  const pointAt = (s, places) => places.reduce((at, place, k) => at * s.facts[k].labels.length + place, 0);

  function fromHash(s) {
    const given = new URLSearchParams(location.hash.slice(1)).get("at");
    const places = given ? given.split(".").map(Number) : [];
    return places.length === s.facts.length && places.every((p, k) => Number.isInteger(p) && p >= 0 && p < s.facts[k].labels.length) ? places : null;
  }

  /* What the page said of the run as it was given. */
  function remember() {
    return { headline: document.querySelector("h1").textContent, figures: document.querySelector(".figures").innerHTML,
      command: (document.querySelector("#again pre") || {}).textContent,
      sections: new Map(SHOWN.map(key => [key, document.getElementById(key)]).filter(([, found]) => found).map(([key, found]) => [key, found.innerHTML])) };
  }

  async function go(s, places, quiet) {
    s.places = places;
    const at = pointAt(s, places), page = s.pages[at];
    places.forEach((place, k) => {
      s.inputs[k].value = place;
      s.inputs[k].setAttribute("aria-valuetext", s.facts[k].labels[place]);
      s.inputs[k].nextElementSibling.textContent = s.facts[k].labels[place];
    });
    curves(s);
    tellOutcome(s, at, page);
    if (at === s.shown) return;
    s.shown = at;
    if (at === s.given) showGiven(s);
    else if (!page.error) showPage(s, page);
    document.body.classList.toggle("cannot", Boolean(page.error));
    if (!quiet) Hash.put({ at: at === s.given ? null : places.join(".") });
    if (!page.error) await showTimeline(s, at);
  }

  function tellOutcome(s, at, page) {
    const given = s.pages[s.given].step;
    s.outcome.replaceChildren();
    s.again.disabled = at === s.given;
    if (page.error) { make("span", "wrong", s.outcome, `This cannot run: ${page.error}`); return; }
    make("b", "", s.outcome, Words.time(page.step * 1e12));
    if (at === s.given) { make("span", "muted", s.outcome, " a step, as given"); return; }
    const change = given ? page.step / given - 1 : 0;
    make("span", "muted", s.outcome, ` a step, ${signed(change)} against ${Words.time(given * 1e12)} as given`);
    const tokens = s.pages[s.given].tokens;
    if (tokens && page.tokens) make("span", "muted", s.outcome, `; ${Words.count(Math.round(page.tokens))} tokens a second, ${signed(page.tokens / tokens - 1)}`);
  }

  const signed = share => `${share >= 0 ? "+" : "−"}${Math.abs(share * 100).toFixed(1)}%`;

  function showGiven(s) {
    title(s.base.headline);
    document.querySelector(".figures").innerHTML = s.base.figures;
    if (s.base.command) document.querySelector("#again pre").textContent = s.base.command;
    for (const section of document.querySelectorAll("main > section[id]")) {
      section.classList.remove("of-given");
      if (section.dataset.made) section.remove();
      else if (s.base.sections.has(section.id)) { section.hidden = false; section.innerHTML = s.base.sections.get(section.id); }
    }
  }

  function showPage(s, page) {
    title(page.headline);
    const list = document.querySelector(".figures");
    list.replaceChildren();
    for (const [label, value, remark] of page.figures) {
      const one = make("div", "", list);
      make("dt", "", one, label);
      make("small", "", make("dd", "", one, value), remark);
    }
    const command = document.querySelector("#again pre");
    if (command && page.command) command.textContent = page.command;
    const found = new Map(page.sections.map(one => [one[0], one]));
    for (const key of SHOWN) {
      const section = document.getElementById(key), one = found.get(key);
      if (section && !one) section.hidden = true;
      if (one) fill(section || added(key, one[4]), one);
    }
    for (const section of document.querySelectorAll("main > section[id]"))
      section.classList.toggle("of-given", !["what-if", "timeline", "again", ...SHOWN].includes(section.id));
  }
  function title(text) { document.querySelector("h1").textContent = document.title = text; }
  /* The HTML is of commsim's own making: every name in it was escaped when it was written. */
  function fill(section, [, heading, lead, body]) {
    section.hidden = false;
    section.replaceChildren();
    make("h2", "", section, heading);
    if (lead) make("p", "lead", section, lead);
    section.insertAdjacentHTML("beforeend", body);
  }
  function added(key, wide) {
    const section = document.createElement("section");
    section.id = key;
    section.dataset.made = "1";
    if (wide) section.className = "wide";
    document.querySelector("main").insertBefore(section, document.getElementById("notes") || document.getElementById("again"));
    return section;
  }

  async function showTimeline(s, at) {
    const place = document.getElementById("viewer");
    if (!place || !place.viewer) return;
    let other = document.getElementById("viewer-what-if");
    if (!other) { other = make("div", "viewer", place.parentElement); other.id = "viewer-what-if"; }
    const text = at === s.given ? "" : taken(String(at));
    place.hidden = Boolean(text);
    other.hidden = !text;
    if (!text) return;
    const base = place.viewer.data.facts, data = await ViewerData.small(text, base.looks);
    if (s.shown !== at) return;
    data.facts.whole = Math.max(data.facts.reach, Math.ceil(base.reach * base.tick / data.facts.tick));
    data.facts.mark = { at: base.reach * base.tick / data.facts.tick, label: "as given" };
    if (other.viewer) other.viewer.close();
    other.replaceChildren();
    other.viewer = Viewer.build(other, data);
  }

  /* The step along each slider, the others as they stand. */
  function curves(s) {
    s.sparks.forEach((svg, k) => {
      const steps = s.facts[k].labels.map((_, place) => { const page = s.pages[pointAt(s, s.places.map((p, at) => at === k ? place : p))]; return page.error ? null : page.step; });
      const wide = svg.clientWidth || 160, tall = svg.clientHeight || 34, known = steps.filter(step => step !== null);
      const high = Math.max(...known, 1e-30), x = at => 8 + at / Math.max(1, steps.length - 1) * (wide - 16), y = step => tall - 5 - step / high * (tall - 12);
      svg.setAttribute("viewBox", `0 0 ${wide} ${tall}`);
      svg.replaceChildren();
      const add = (tag, attributes) => { const one = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const name in attributes) one.setAttribute(name, attributes[name]); svg.append(one); return one; };
      add("line", { x1: 0, x2: wide, y1: tall - 5, y2: tall - 5, class: "floor" });
      let path = "", last = false;
      steps.forEach((step, at) => { if (step === null) { last = false; return; } path += `${last ? "L" : "M"}${x(at).toFixed(1)} ${y(step).toFixed(1)}`; last = true; });
      add("path", { d: path });
      steps.forEach((step, at) => {
        const here = at === s.places[k], dot = add("circle", { cx: x(at), cy: step === null ? tall - 5 : y(step), r: here ? 5 : 3, class: step === null ? "none" : here ? "here" : "" });
        const tip = document.createElementNS("http://www.w3.org/2000/svg", "title");
        tip.textContent = `${s.facts[k].labels[at]}: ${step === null ? "cannot run" : Words.time(step * 1e12)}`;
        dot.append(tip);
        dot.addEventListener("click", () => go(s, s.places.map((p, axis) => axis === k ? at : p)));
      });
    });
  }

  return { start };
})();
