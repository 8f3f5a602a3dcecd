"use strict";
/* The timeline as a picture, as it is seen: PNG from the canvas, SVG by drawing the same again. */

function takePictures(c, title) {
  const PAD = 12, HEAD = 46;

  /* What of a canvas the drawing uses, written down as SVG. */
  class SvgContext {
    constructor(measure) { this.parts = []; this.measure = measure; this.stack = []; this.clips = 0; this.patterns = new Map(); this.path = ""; this.globalAlpha = 1; this.open = 0; this.scale = 1; }
    get canvas() { return null; }
    setTransform(a) { if (this.scaled) { this.parts.push("</g>"); this.scaled = false; } if (a !== 1) { this.parts.push(`<g transform="scale(${a})">`); this.scaled = true; } }
    clearRect() {}
    save() { this.stack.push({ open: this.open, fillStyle: this.fillStyle, strokeStyle: this.strokeStyle, font: this.font, globalAlpha: this.globalAlpha }); }
    restore() { const was = this.stack.pop(); while (this.open > was.open) { this.parts.push("</g>"); this.open--; } Object.assign(this, was); }
    beginPath() { this.path = ""; }
    rect(x, y, w, h) { this.path += `M${x} ${y}h${w}v${h}h${-w}Z`; }
    moveTo(x, y) { this.path += `M${n(x)} ${n(y)}`; }
    lineTo(x, y) { this.path += `L${n(x)} ${n(y)}`; }
    bezierCurveTo(...at) { this.path += `C${at.map(n).join(" ")}`; }
    clip() { this.parts.push(`<clipPath id="clip${++this.clips}"><path d="${this.path}"/></clipPath><g clip-path="url(#clip${this.clips})">`); this.open++; }
    stroke() { this.parts.push(`<path d="${this.path}" fill="none" ${this.ink("stroke", this.strokeStyle)} stroke-width="${n(this.lineWidth)}"/>`); }
    fill() { this.parts.push(`<path d="${this.path}" ${this.ink("fill", this.fillStyle)}/>`); }
    fillRect(x, y, w, h) { if (w > 0 && h > 0) this.parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" ${this.ink("fill", this.fillStyle)}/>`); }
    strokeRect(x, y, w, h) { this.parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" fill="none" ${this.ink("stroke", this.strokeStyle)} stroke-width="${n(this.lineWidth)}"/>`); }
    measureText(text) { this.measure.font = this.font; return this.measure.measureText(text); }
    fillText(text, x, y, room) {
      const found = /^(bold )?([\d.]+)px (.*)$/.exec(this.font), anchor = { center: "middle", right: "end" }[this.textAlign] || "start";
      const drop = this.textBaseline === "middle" ? 0.35 : this.textBaseline === "bottom" ? -0.2 : 0, wide = this.measureText(text).width;
      const fit = room !== undefined && wide > room ? ` textLength="${n(room)}" lengthAdjust="spacingAndGlyphs"` : "";
      this.parts.push(`<text x="${n(x)}" y="${n(y + drop * found[2])}" font-size="${n(Number(found[2]))}"${found[1] ? ' font-weight="bold"' : ""} text-anchor="${anchor}"${fit} ${this.ink("fill", this.fillStyle)}>${escaped(text)}</text>`);
    }
    drawImage(canvas, sx, sy, sw, sh, x, y, w, h) {
      const copy = document.createElement("canvas");
      copy.width = sw;
      copy.height = sh;
      copy.getContext("2d").drawImage(canvas, sx, sy, sw, sh, 0, 0, sw, sh);
      this.parts.push(`<image x="${x}" y="${y}" width="${w}" height="${h}" preserveAspectRatio="none" image-rendering="pixelated" href='${copy.toDataURL("image/png")}'/>`);
    }
    ink(kind, style) {
      const alpha = this.globalAlpha < 1 ? ` ${kind}-opacity="${this.globalAlpha}"` : "";
      if (typeof style === "string") return `${kind}="${style}"${alpha}`;
      if (!this.patterns.has(style)) this.patterns.set(style, this.patterns.size);
      return `${kind}="url(#stripes${this.patterns.get(style)})"${alpha}`;
    }
    defs() {
      return [...this.patterns].map(([{ paper, line, size }, at]) => `<pattern id="stripes${at}" width="${size}" height="${size}" patternUnits="userSpaceOnUse"><rect width="${size}" height="${size}" fill="${paper}"/><path d="M${-size} ${size}L0 0M0 ${size}L${size} 0M${size} ${size}L${2 * size} 0" stroke="${line}" stroke-width="${Math.max(1, size / 7)}"/></pattern>`).join("");
    }
  }
  const n = value => String(Math.round(value * 100) / 100);
  const escaped = text => String(text).replace(/[&<>"]/g, one => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);

  /* Title and legend above, then rows and what lies over them; sizes in pixels of the device. */
  function compose(ctx, layers) {
    const r = c.pal.ratio;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = c.pal.paper;
    ctx.fillRect(0, 0, c.main.width + 2 * PAD * r, c.main.height + (HEAD + 2 * PAD) * r);
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.fillStyle = c.pal.ink;
    ctx.font = `bold ${15 * r}px ${c.pal.font}`;
    ctx.fillText(title(), PAD * r, (PAD + 9) * r, c.main.width);
    ctx.font = `${12 * r}px ${c.pal.font}`;
    let x = PAD * r;
    for (const look of c.legend.querySelectorAll(".look")) {
      const fill = ViewerPaint.swatch(c.pal, c.facts.looks, look), text = look.textContent, wide = ctx.measureText(text).width;
      if (!fill || x + wide > c.main.width) continue;
      ctx.fillStyle = fill;
      ctx.fillRect(x, (PAD + 26) * r, 11 * r, 11 * r);
      ctx.fillStyle = c.pal.ink;
      ctx.fillText(text, x + 16 * r, (PAD + 32) * r);
      x += wide + 34 * r;
    }
    layers(PAD * r, (PAD + HEAD) * r);
  }

  function png() {
    const r = c.pal.ratio, whole = document.createElement("canvas");
    whole.width = c.main.width + 2 * PAD * r;
    whole.height = c.main.height + (HEAD + 2 * PAD) * r;
    const ctx = whole.getContext("2d");
    compose(ctx, (x, y) => { ctx.drawImage(c.main, x, y); ctx.drawImage(c.over, x, y + (c.main.height - c.over.height)); });
    return new Promise(done => whole.toBlob(done, "image/png"));
  }

  function svg() {
    const r = c.pal.ratio, ctx = new SvgContext(document.createElement("canvas").getContext("2d"));
    const wide = c.main.width + 2 * PAD * r, tall = c.main.height + (HEAD + 2 * PAD) * r;
    compose(ctx, (x, y) => {
      ctx.parts.push(`<g transform="translate(${x} ${y})">`);
      c.drawMain(ctx);
      c.drawOver(ctx);
      ctx.setTransform(1);
      ctx.parts.push("</g>");
    });
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${n(wide)} ${n(tall)}" width="${n(wide / r)}" height="${n(tall / r)}" font-family="${escaped(c.pal.font)}"><defs>${ctx.defs()}</defs>${ctx.parts.join("")}</svg>\n`;
  }

  function saved(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
  /* To the clipboard if the browser lets it, else as a file. */
  async function copy(kind) {
    const blob = kind === "png" ? await png() : new Blob([svg()], { type: "image/svg+xml" });
    try {
      if (kind === "png") await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
      else await navigator.clipboard.writeText(await blob.text());
      c.say(`The timeline as you see it is on the clipboard, as ${kind.toUpperCase()}.`);
    } catch (error) {
      saved(blob, `timeline.${kind}`);
      c.say(`The timeline as you see it is saved as timeline.${kind}.`);
    }
  }

  Object.assign(c, { png, svg, copy });
}
