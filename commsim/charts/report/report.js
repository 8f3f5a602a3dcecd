"use strict";
/* The part of the address after "#": what is looked at, so that a link leads there. */
const Hash = {
  get: () => new URLSearchParams(location.hash.slice(1)),
  /* Sets some keys, takes away those that are null; a section's anchor gives way. */
  put(values) {
    const now = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    for (const key in values) if (values[key] === null) now.delete(key); else now.set(key, values[key]);
    const text = now.toString();
    try { history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search); } catch (error) { /* too often, or not allowed from disk */ }
  },
};
addEventListener("hashchange", () => document.dispatchEvent(new Event("viewhash")));
/* What the page does beside its viewer: light or dark, and unpacking the viewer. */
(() => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    show(now === "dark" ? "light" : "dark");
    try { localStorage.setItem("commsim-theme", root.dataset.theme); } catch (error) { /* from disk, perhaps */ }
  });
  /* Paper is white, whatever the screen is. */
  let shown;
  function show(theme) {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    document.dispatchEvent(new Event("themechange"));
  }
  addEventListener("beforeprint", () => { shown = root.dataset.theme; show("light"); });
  addEventListener("afterprint", () => show(shown));
  const facts = document.getElementById("viewer-facts"), place = document.getElementById("viewer");
  if (!facts) return;
  if (!("DecompressionStream" in window)) { place.textContent = "This browser cannot unpack the timeline: it needs DecompressionStream (Chrome 80, Firefox 113, Safari 16.4)."; return; }
  const started = Viewer.start(place, JSON.parse(facts.textContent), Hash).catch(error => { place.textContent = `The timeline could not be shown: ${error}`; throw error; });
  const grid = document.getElementById("what-if-facts");
  if (grid) started.then(() => Sliders.start(document.getElementById("what-if"), JSON.parse(grid.textContent)));
})();
