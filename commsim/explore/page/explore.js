"use strict";
/* The page as a whole: what is chosen is asked, what is answered is shown. */

(() => {
  const byId = id => document.getElementById(id);
  const WAIT = 150; // milliseconds that a slider rests before its value is asked
  const page = crypto.randomUUID(); // which numbers its questions, so that a stop can say up to which
  let turn = 0, asked = 0, rest = 0, began = 0, clock = 0, curvesOf = "", start = null;

  async function begin() {
    start = await (await fetch("start")).json();
    if (!start.controls) { byId("headline").textContent = "The scenario could not be read; the terminal says why."; return; }
    Choices.experts = start.experts;
    Choices.build(byId("controls"), start.controls, later);
    if (innerWidth < 900) byId("drawer").open = false;
    recall();
    byId("name").textContent = start.name;
    byId("headline").textContent = "Simulating …";
    byId("pin").addEventListener("click", Answer.pin);
    byId("stop").addEventListener("click", stop);
    byId("reset").addEventListener("click", () => { Choices.set({}); ask(); });
    byId("controls").addEventListener("submit", event => event.preventDefault());
    document.addEventListener("click", take);
    addEventListener("hashchange", () => { if (recall()) ask(); });
    let wide = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; Answer.redraw(); } });
    ask();
  }

  /* The choices stand in the address, so that a reload and "back" keep them. */
  function recall() {
    const values = {};
    for (const [key, value] of new URLSearchParams(location.hash.slice(1))) { try { values[key] = JSON.parse(value); } catch (error) { /* not ours */ } }
    const before = JSON.stringify(Choices.chosen());
    Choices.set(values);
    return JSON.stringify(Choices.chosen()) !== before;
  }
  function note(chosen) {
    const text = new URLSearchParams(Object.entries(chosen).map(([key, value]) => [key, JSON.stringify(value)])).toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname);
    const changes = Object.keys(chosen).length;
    byId("name").textContent = changes ? `${start.source}, with ${changes} change${changes > 1 ? "s" : ""}` : start.name;
    byId("chosen").textContent = [Choices.text("model").replace(/ \(.*/, ""), Choices.all.has("nodes") ? `${Choices.text("nodes")} × ${Choices.text("cluster")}` : ""].filter(Boolean).join(" on ") || "choices";
  }

  function later() { clearTimeout(rest); rest = setTimeout(ask, WAIT); }

  const post = (name, body) => fetch(name, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ page, question: asked, ...body }) });

  /* Asks the server; `each` gets every line of its answer until it is done or asked anew. */
  async function lines(name, body, each) {
    asked += 1;
    const response = await post(name, body);
    if (!response.ok) throw new Error(await response.text());
    const reader = response.body.getReader(), decoder = new TextDecoder();
    let kept = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (kept + decoder.decode(value, { stream: true })).split("\n");
      kept = parts.pop();
      for (const part of parts) if (part) each(JSON.parse(part));
    }
  }

  async function ask() {
    clearTimeout(rest);
    const mine = ++turn, chosen = Choices.chosen();
    note(chosen);
    busy(true);
    let answered = false, first = 0;
    try {
      await lines("run", { chosen }, message => {
        if (mine !== turn) return;
        if (message.kind === "progress") doing(message.doing);
        if (message.kind === "error") problem(message);
        if (message.kind === "stopped") { ended("stopped"); byId("result").classList.add("stale"); }
        if (message.kind === "step") { first = performance.now(); problem(null); Answer.show(message); choose(); }
        if (message.kind === "run") { answered = true; problem(null); if (first) Answer.complete(message); else Answer.show(message); choose(); }
      });
    } catch (error) { if (mine === turn) problem({ message: gone(error), controls: [] }); }
    if (mine !== turn) return;
    busy(false);
    if (answered) { ended(`answered in ${(((first || performance.now()) - began) / 1e3).toFixed(1)} s`); await askCurves(mine, chosen); }
    if (mine === turn) document.body.dataset.settled = String(mine);
  }

  const gone = error => error instanceof TypeError ? "commsim explore is not running any more. Start it again in the terminal." : error.message;

  /* The curves depend on the cluster and the library alone. */
  async function askCurves(mine, chosen) {
    const select = byId("op"), about = ["cluster", "nodes", "library", "nic", "nvlink", "network_latency", "oversubscription"];
    const of = JSON.stringify([select ? select.value : "", ...about.map(key => chosen[key])]);
    if (!select || of === curvesOf) return;
    byId("plot").classList.add("stale");
    try {
      await lines("curves", { chosen, op: select.value }, message => {
        if (mine !== turn) return;
        if (message.kind === "curves") { curvesOf = of; Answer.showCurves(message); }
        if (message.kind === "error") { byId("curves-words").textContent = ` ${message.message}`; byId("plot").replaceChildren(); }
      });
    } catch (error) { /* the next choice says so */ }
  }

  function choose() {
    const select = byId("op");
    if (!select || select.options.length) return;
    for (const op of start.ops) make("option", "", select, op.replaceAll("_", "-")).value = op;
    select.addEventListener("change", () => askCurves(turn, Choices.chosen()));
  }

  function busy(on) {
    byId("stop").hidden = !on;
    byId("result").classList.toggle("busy", on);
    clearInterval(clock);
    if (!on) return;
    began = performance.now();
    doing("asking");
    clock = setInterval(() => doing(byId("doing").dataset.doing), 200);
  }
  function doing(what) {
    byId("doing").dataset.doing = what;
    const seconds = (performance.now() - began) / 1e3;
    byId("doing").textContent = seconds < 0.5 ? `${what} …` : `${what} … ${seconds.toFixed(1)} s`;
  }

  /* The last word on a question: the clock rests first, which would write over it. */
  function ended(text) {
    busy(false);
    byId("doing").textContent = text;
  }

  function problem(message) {
    const place = byId("problem");
    place.hidden = !message;
    place.textContent = message ? message.message : "";
    byId("result").classList.toggle("stale", Boolean(message));
    if (message) ended(Answer.latest() ? "what is shown is the answer before" : "");
    Choices.blame(message ? message.controls : [], message ? message.message : "");
  }

  async function stop() { await post("stop", {}); }

  function save(name, kind, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: kind }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  async function take(event) {
    const answer = Answer.latest(), id = event.target.id;
    if (!answer) return;
    if (id === "save-scenario") save("scenario.yaml", "application/yaml", answer.yaml);
    if (id === "copy-command") { await navigator.clipboard.writeText(answer.command); event.target.textContent = "Copied"; }
    if (id === "save-report") {
      event.target.disabled = true;
      await lines("report", { chosen: Choices.chosen() }, message => { if (message.kind === "report") save("report.html", "text/html", message.html); });
      event.target.disabled = false;
    }
  }

  begin();
})();
