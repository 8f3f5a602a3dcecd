"use strict";
/* Light or dark before anything is drawn; the choice is kept in this browser. */
(() => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  try { const kept = localStorage.getItem("commsim-theme"); if (kept) root.dataset.theme = kept; } catch (error) { /* no storage */ }
  addEventListener("DOMContentLoaded", () => document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("commsim-theme", root.dataset.theme); } catch (error) { /* no storage */ }
    document.dispatchEvent(new Event("themechange"));
  }));
})();
