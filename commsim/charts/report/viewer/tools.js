"use strict";
/* The search box, the buttons and the legend above the rows. */

function makeTools(c) {
  c.box = make("input", "", c.tools);
  c.counter = make("span", "count", c.tools);
  c.box.type = "search";
  c.box.placeholder = "search names, “rank 3”";
  c.box.setAttribute("aria-label", "search spans by name");
  c.box.addEventListener("input", () => c.search(c.box.value));
  c.box.addEventListener("keydown", event => {
    if (event.key === "Enter") c.next(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { c.box.value = ""; c.search(""); c.main.focus(); }
  });
  const kinds = ViewerLines.choices(c.facts.lanes);
  if (kinds.length > 1) {
    const select = make("select", "", c.tools);
    select.setAttribute("aria-label", "group ranks by");
    for (const kind of kinds) { const option = make("option", "", select, kind === "none" ? "no groups" : `by ${kind}`); option.value = kind; }
    select.value = c.state.by;
    select.addEventListener("change", () => c.groupBy(select.value));
    c.select = select;
  }
  function groupBy(kind) {
    c.state.by = kind;
    if (c.select) c.select.value = kind;
    c.state.closed = ViewerLines.folded(c.facts, kind);
    c.state.top = 0;
    c.fit();
  }
  function button(text, title, act) {
    const one = make("button", "", c.tools, text);
    one.type = "button";
    one.title = title;
    one.setAttribute("aria-label", title);
    one.addEventListener("click", () => act(one));
    return one;
  }
  button("−", "zoom out", () => c.zoom(2));
  button("+", "zoom in", () => c.zoom(0.5));
  button("all", "show all of the time", () => c.setView(0, c.whole));
  if (c.facts.steps[0]) button("step", "show the measured step", () => c.setView(...c.facts.steps[0]));
  function toggle(name, one) {
    c.state[name] = !c.state[name];
    one.setAttribute("aria-pressed", String(c.state[name]));
    c.choose(c.state.chosen);
  }
  c.pressed = {};
  const messages = c.facts.meanings.some(row => row[3] <= -2);
  if (messages || c.data.launch) c.pressed.arrows = button("arrows", messages ? "arrows from send to recv" : "arrows from the host to what it launched", one => toggle("arrows", one));
  if (c.facts.paths.some(path => path.length)) c.pressed.path = button("critical path", "the chain that sets the step time", one => toggle("path", one));
  c.pressed.measure = button("measure", "drag over a stretch of rows for a table of what is inside (m, or alt and drag)", one => toggle("measure", one));
  button("SVG", "copy or save the timeline, as you see it, as SVG", () => c.copy("svg"));
  button("PNG", "copy or save the timeline, as you see it, as PNG", () => c.copy("png"));
  for (const name in c.pressed) c.pressed[name].setAttribute("aria-pressed", "false");
  const present = new Set(c.data.family);
  c.facts.looks.forEach((look, k) => {
    if (!present.has(k)) return;
    const names = new Set(c.facts.meanings.filter(row => row[1] === k && row[3] >= 0).map(row => c.facts.words[row[3]]));
    const one = make("button", "look", c.legend);
    one.type = "button";
    one.title = "click to see only these";
    one.dataset.look = k;
    make("i", "", one).style.background = look.fill;
    make("span", "", one, [...names].join(", ") || look.label);
    one.setAttribute("aria-pressed", "false");
    one.addEventListener("click", () => {
      const on = one.getAttribute("aria-pressed") !== "true";
      for (const other of c.legend.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
      one.setAttribute("aria-pressed", String(on));
      c.box.value = c.counter.textContent = "";
      c.state.lit = on ? c.litBy(row => row[1] === k) : null;
      c.changed();
    });
  });
  if (c.data.wait.some(Boolean)) { const one = make("span", "look", c.legend); make("i", "waits", one); make("span", "", one, "waiting"); }
  const idle = make("span", "look", c.legend);
  make("i", "idle", idle);
  make("span", "", idle, "not computing");

  Object.assign(c, { toggle, groupBy });
}
