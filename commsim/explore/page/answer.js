"use strict";
/* What a run came to: the report's own pieces, and against what was pinned. */

const Answer = (() => {
  const BETTER = { "step time": -1, "tokens per second": 1, MFU: 1, "bubble fraction": -1, "memory of the fullest GPU": -1, "cost per step": -1 };
  const PER_STEP = ["step time", "cost per step"];
  const MEMORY = ["parameters", "gradients", "optimizer", "activations", "buffers", "runtime", "slack"];
  const byId = id => document.getElementById(id);
  let latest = null, pinned = null, curves = null;

  /* The answer: of the step alone at first, without sections; those before stay, greyed, until `complete`. */
  function show(answer) {
    latest = answer;
    byId("headline").textContent = answer.headline;
    const fits = !answer.memory || answer.memory.fits;
    byId("oom").hidden = fits;
    byId("oom").textContent = fits ? "" : `Does not fit in memory: ${answer.memory.sentence}.`;
    figures();
    sections(answer);
    timeline(answer.viewer);
  }

  function complete(answer) {
    latest = answer;
    byId("headline").textContent = answer.headline;
    sections(answer);
  }

  function inWords({ gpus, dp, batch }) {
    const told = [];
    if (gpus) told.push(`${Words.count(gpus)} GPU${gpus > 1 ? "s" : ""}`);
    if (dp) told.push(`${Words.count(dp)} replica${dp > 1 ? "s" : ""}`);
    if (batch) told.push(`batch of ${Words.count(batch)} sequence${batch > 1 ? "s" : ""}`);
    return told.join(" · ");
  }

  function figures() {
    const list = byId("figures"), now = inWords(latest.shape), before = pinned ? inWords(pinned.shape) : now;
    byId("shape").textContent = before === now ? now : `${now} (pinned: ${before})`;
    list.replaceChildren();
    for (const [label, value, remark] of latest.figures) {
      const box = make("div", "", list);
      make("dt", "", box, label);
      const told = make("dd", "", box, value);
      make("small", "", told, remark || "\u00a0");
      if (pinned) against(told, label);
    }
  }

  /* How a figure stands to the pinned one, in words and colour. */
  function against(place, label) {
    const before = pinned.numbers[label], now = latest.numbers[label];
    if (!before || now === null || now === undefined) return;
    const change = now / before - 1;
    if (Math.abs(change) < 5e-4) { make("small", "", place, "as pinned"); return; }
    const text = Math.abs(change) >= 1 ? `× ${Number((now / before).toPrecision(3))}` : `${change > 0 ? "+" : "−"}${(100 * Math.abs(change)).toFixed(1)} %`;
    const look = PER_STEP.includes(label) && !sameStep() ? "other" : change * BETTER[label] > 0 ? "better" : "worse";
    make("small", look, place, text);
  }

  /* Steps of other batches are longer or shorter, not worse or better. */
  const sameStep = () => ["batch", "seq_len"].every(key => pinned.shape[key] === latest.shape[key]);

  function pin() {
    if (!latest) return;
    pinned = pinned ? null : { numbers: latest.numbers, shape: latest.shape };
    byId("pin").setAttribute("aria-pressed", String(Boolean(pinned)));
    byId("pin").textContent = pinned ? "Unpin" : "Pin to compare";
    figures();
  }

  function section(key, title, lead, wide) {
    const made = make("section", wide ? "wide" : "");
    made.id = key;
    make("h2", "", made, title);
    if (lead) make("p", "lead", made, lead);
    return made;
  }

  const FIRST = ["breakdown", "bubble", "limits"];

  function sections(answer) {
    const main = byId("sections"), kept = Choices.all.has("cluster") ? byId("curves") || curvesSection() : null;
    const line = byId("timeline") || section("timeline", "Timeline", "", true);
    const made = new Map();
    for (const one of answer.sections ? [] : main.querySelectorAll(":scope > .told")) { one.classList.add("stale"); made.set(one.id, one); }
    for (const part of answer.sections || []) {
      const one = section(part.key, part.title, part.lead, part.wide);
      one.classList.add("told");
      const body = make("div", "body", one);
      body.innerHTML = part.body; // written and escaped by commsim's own report
      made.set(part.key, one);
    }
    const beside = [memory(answer.memory), cost(answer)].filter(Boolean), column = make("div", "column");
    column.append(...beside);
    const order = [line, kept, beside.length ? column : null, ...FIRST.map(key => made.get(key))];
    const rest = [...made].filter(([key]) => !FIRST.includes(key)).map(([, one]) => one);
    main.replaceChildren(...[...order, ...rest, again(answer)].filter(Boolean));
    lay(main);
  }

  /* Widens a narrow section that has no neighbour to share its row with. */
  function lay(main) {
    let alone = null;
    for (const one of main.children) {
      if (one.classList.contains("stretched")) one.classList.remove("wide", "stretched");
      if (one.classList.contains("wide")) { if (alone) alone.classList.add("wide", "stretched"); alone = null; }
      else alone = alone ? null : one;
    }
    if (alone) alone.classList.add("wide", "stretched");
  }

  function curvesSection() {
    const made = section("curves", "Ring or tree", "");
    const lead = make("p", "lead", made), select = make("select", "", lead);
    select.id = "op";
    select.setAttribute("aria-label", "collective");
    make("span", "", lead).id = "curves-words";
    make("div", "body plot", made).id = "plot";
    return made;
  }

  function showCurves(answer) {
    curves = answer;
    byId("curves-words").textContent = ` over all ${answer.system ? `${Words.count(answer.system.gpus)} GPUs` : "GPUs"}. ${Curves.sentence(answer)}`;
    byId("plot").classList.remove("stale");
    redraw();
  }
  function redraw() { if (curves && byId("plot")) Curves.draw(byId("plot"), curves); }

  function memory(held) {
    if (!held) return null;
    const made = section("held", "Memory of the fullest GPU", held.sentence), full = Math.max(held.peak, held.capacity || 0);
    const bar = make("div", `bar tall room${held.fits ? "" : " over"}`, made);
    for (const [name, size] of held.parts) {
      const one = make("span", `m${MEMORY.indexOf(name)}`, bar);
      one.style.width = `${100 * size / full}%`;
      one.title = `${name} ${size.toFixed(1)} GiB`;
    }
    if (held.capacity) { const mark = make("i", "edge", bar); mark.style.left = `${100 * held.capacity / full}%`; mark.title = `a GPU has ${held.capacity.toFixed(1)} GiB`; }
    const key = make("p", "key", made);
    for (const [name, size] of held.parts) { const one = make("span", "", key); make("i", `m${MEMORY.indexOf(name)}`, one); one.append(`${name} ${size.toFixed(1)} GiB`); }
    return made;
  }

  function cost(answer) {
    const money = answer.cost, rows = [], tell = (name, value) => rows.push([name, value]);
    if (!answer.shape.gpus) return null;
    const coins = value => `${value >= 100 ? Words.count(Math.round(value)) : Number(value.toPrecision(3))} ${money.currency}`;
    if (money.per_hour) { tell("an hour of the cluster", coins(money.per_hour)); tell("a step", coins(money.per_step)); }
    if (money.per_1e9_tokens) tell("a billion tokens", coins(money.per_1e9_tokens));
    if (money.power_w) tell("power, at most", `${Words.count(Number((money.power_w / 1e3).toPrecision(3)))} kW`);
    if (money.energy_kwh_per_1e9_tokens) tell("energy for a billion tokens", `${Words.count(Number(money.energy_kwh_per_1e9_tokens.toPrecision(3)))} kWh`);
    const made = section("cost", "Cost", money.per_hour ? "" : "No price is known of this cluster: `cluster.prices` in the scenario states one.");
    if (rows.length) {
      const table = make("table", "", make("div", "scroll", made));
      for (const [name, value] of rows) { const row = make("tr", "", table); make("td", "", row, name); make("td", "right", row, value); }
    }
    return made;
  }

  function again(answer) {
    const made = section("take", "Run it again", "In a terminal, with the same numbers; the scenario saved above gives them too.", true);
    make("pre", "", made, answer.command).id = "command";
    return made;
  }

  /* The report's own viewer; the one before goes once this one is there. */
  async function timeline(html) {
    const place = byId("timeline");
    const box = make("div", "viewer"), before = place.querySelector(".viewer");
    byId("data").innerHTML = html; // data elements alone: scripts set this way do not run
    const facts = byId("viewer-facts");
    if (!facts) { if (before) before.remove(); make("p", "muted", place, "Nothing ran."); return; }
    if (!before) place.append(box); else { box.hidden = true; before.after(box); }
    box.id = "viewer";
    if (before) before.removeAttribute("id");
    box.hidden = false;
    await Viewer.start(box, JSON.parse(facts.textContent));
    if (before) { if (before.viewer && before.viewer.close) before.viewer.close(); before.remove(); }
  }

  return { show, complete, showCurves, pin, redraw, latest: () => latest, byId };
})();
