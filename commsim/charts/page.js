// Draws the figures of a page: titles as text that wraps, colours for light or dark.
"use strict";
(async () => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = {displaylogo: false, responsive: false};
  const night = matchMedia("(prefers-color-scheme: dark)");
  const ON_DARK = {
    "#FFFFFF": "#15171C", "#1F2937": "#E5E7EB", "#6B7280": "#A3ABB8", "#E5E7EB": "#2C323C",
    "#F3F4F6": "#22262E", "#E3E6EA": "#343A45", "#FAFAFB": "#1A1D23",
    // Use of links: the fuller the farther from the paper.
    "#B9C0CB": "#565E6B", "#C98F2B": "#A87B2E", "#C9701F": "#C9873A", "#BF4E2A": "#E58A4F",
    "#A12B2F": "#F58E6E", "#6E1527": "#FFC2B0",
  };
  // What is written on a box keeps its ink, and text keeps its words.
  const WORDS = new Set(["text", "name", "customdata", "hovertemplate", "hoverlabel"]);
  const KEPT = new Set([...WORDS, "textfont", "colorscale"]);

  // Turns what is nearly paper dark, hue kept; colours with a meaning stay.
  function dark(colour) {
    if (colour in ON_DARK) return ON_DARK[colour];
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const light = (Math.max(r, g, b) + Math.min(r, g, b)) / 510;
    if (light < 0.8) return colour;
    const shift = 255 * (1.07 - 0.99 * light - light);
    const turned = [r, g, b].map((c) => Math.round(Math.min(255, Math.max(0, c + shift))));
    return `rgb(${turned[0]},${turned[1]},${Math.min(255, turned[2] + 8)})`;
  }

  function recolour(value, kept) {
    if (typeof value === "string") return /^#[0-9A-Fa-f]{6}$/.test(value) ? dark(value) : value;
    if (Array.isArray(value)) {
      return typeof value[0] === "number" ? value : value.map((one) => recolour(one, kept));
    }
    if (value === null || typeof value !== "object") return value;
    const made = {};
    for (const [name, part] of Object.entries(value)) {
      made[name] = kept.has(name) ? part : recolour(part, kept);
    }
    return made;
  }

  // A scale of colours ends in the paper's opposite: full is dark on white, light on black.
  function turned(trace) {
    if (!trace.colorscale) return trace;
    const colours = trace.colorscale.map((step) => step[1]).reverse();
    return {...trace, colorscale: trace.colorscale.map((step, i) => [step[0], colours[i]])};
  }

  function onDark(figure) {
    return {
      data: figure.data.map(
        (trace) => turned(recolour(trace, trace.meta === "on paper" ? WORDS : KEPT)),
      ),
      layout: recolour(figure.layout, KEPT),
    };
  }

  function layoutOf(figure, element) {
    const layout = {...figure.layout, margin: {...figure.layout.margin}};
    const lessTop = layout.margin.t - 40;
    layout.margin.t = 40;
    layout.height -= lessTop;
    delete layout.title;
    delete layout.width;
    if ((layout.yaxis || {}).scaleanchor) {  // as high as it is wide: no empty space below
      layout.height = Math.min(layout.height, element.clientWidth + layout.margin.b + 80);
    }
    if (element.clientWidth < 560) {
      layout.margin.l = Math.min(layout.margin.l, 8);
      layout.margin.r = Math.min(layout.margin.r, 8);
      layout.legend = {...layout.legend, x: 0, xanchor: "left", font: {size: 11}};
      for (const [name, axis] of Object.entries(layout)) {  // sizes would touch: every other one
        if (!name.startsWith("xaxis") || axis.type !== "log" || !axis.tickvals) continue;
        const every = Math.ceil(axis.tickvals.length / 5), kept = (_, at) => at % every === 0;
        layout[name] = {
          ...axis, tickvals: axis.tickvals.filter(kept), ticktext: axis.ticktext.filter(kept),
        };
      }
    }
    return layout;
  }

  function draw() {
    figures.forEach((figure, i) => {
      if (figure === null) return;  // a table: it stands in the page already
      const element = document.getElementById(i ? `chart${i}` : "chart");
      const shown = night.matches ? onDark(figure) : figure;
      const layout = layoutOf(shown, element);
      if (night.matches) layout.hoverlabel = {...layout.hoverlabel, bgcolor: "#374151"};
      Plotly.newPlot(element, shown.data, layout, config).then(() => roomForLegend(element, layout));
    });
  }

  // A legend of several lines takes its room from the page, not from the plot.
  function roomForLegend(element, layout) {
    const legend = element.querySelector(".legend");
    const extra = legend ? Math.round(legend.getBBox().height) - 30 : 0;
    if (extra > 8) Plotly.relayout(element, {height: layout.height + extra});
  }

  // Offers axes on a log scale where a figure says that it makes sense.
  function offerLog() {
    figures.forEach((figure, i) => {
      if (figure === null) return;  // a table: it stands in the page already
      const axes = (figure.layout.meta || {}).log;
      if (!axes) return;
      const element = document.getElementById(i ? `chart${i}` : "chart");
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = axes.every((axis) => figure.layout[axis].type === "log");
      label.append(box, " busbw on a log scale");
      element.before(label);
      box.addEventListener("change", () => {
        for (const axis of axes) {
          // A line at each power of ten; on a linear scale plotly chooses the step.
          Object.assign(figure.layout[axis], {
            type: box.checked ? "log" : "linear", dtick: box.checked ? 1 : null,
          });
        }
        draw();
      });
    });
  }

  // plotly.js stands in the page as gzip.
  async function loadPlotly() {
    const packed = document.getElementById("plotly").textContent;
    if (!packed) return;
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  offerLog();
  await loadPlotly();
  draw();
  night.addEventListener("change", draw);
  let width = innerWidth;
  let waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;  // phones change the height when their bars hide
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 120);
  });
})();
