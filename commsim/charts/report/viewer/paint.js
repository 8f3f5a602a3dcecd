"use strict";
/* Painting rows of the viewer: boxes where they are two pixels or more, shares per pixel column where
   they are less. Sizes are pixels of the device unless they say otherwise. */

const ViewerPaint = (() => {
  const BOX = 2, GAP = 0.04, APART = 8;

  function rgb(hex) { return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16)); }
  function mixed(hex, paper, strength) {
    const a = rgb(hex), b = rgb(paper);
    return "#" + a.map((v, k) => Math.round(v * strength + b[k] * (1 - strength)).toString(16).padStart(2, "0")).join("");
  }
  function word(hex) { const [r, g, b] = rgb(hex); return (255 << 24 | b << 16 | g << 8 | r) >>> 0; }

  function stripes(paper, line, size) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const ctx = tile.getContext("2d");
    ctx.fillStyle = paper;
    ctx.fillRect(0, 0, size, size);
    ctx.strokeStyle = line;
    ctx.lineWidth = Math.max(1, size / 7);
    ctx.beginPath();
    for (const shift of [-size, 0, size]) { ctx.moveTo(shift, size); ctx.lineTo(shift + size, 0); }
    ctx.stroke();
    return tile;
  }

  /* All that depends on the theme and on the pixels of the device. */
  function palette(looks, ctx, ratio, font) {
    const style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(name).trim(), paper = colour("--card");
    const pattern = (a, b) => Object.assign(ctx.createPattern(stripes(a, b, Math.round(6 * ratio)), "repeat"), { paper: a, line: b, size: Math.round(6 * ratio) });
    const pale = looks.map(look => mixed(look.fill, paper, 0.3));
    const dim = colour("--dim");
    return {
      ratio, font, dim, paper, ink: colour("--ink"), muted: colour("--muted"), grid: colour("--grid"),
      lane: colour("--lane"), head: colour("--head"), focus: colour("--focus"), path: colour("--path"),
      fills: looks.map(look => look.fill), inks: looks.map(look => look.ink),
      waits: looks.map((look, k) => pattern(pale[k], mixed(look.fill, paper, 0.55))),
      idle: pattern(colour("--idle"), colour("--hatch")),
      words: Uint32Array.from([...looks.map(look => look.fill), ...pale, dim].map(word)),
    };
  }

  /* Adds the part of a pixel column that [a, b) covers, for one look. */
  function spread(shares, looks, width, a, b, look) {
    if (a < 0) a = 0;
    if (b > width) b = width;
    if (b <= a) return;
    let column = a | 0;
    if (b <= column + 1) { shares[column * looks + look] += b - a; return; }
    shares[column * looks + look] += column + 1 - a;
    for (column++; column + 1 <= b; column++) shares[column * looks + look] += 1;
    if (b > column) shares[column * looks + look] += b - column;
  }

  let shares = new Float32Array(0), scratch = null;
  function cleared(size) {
    if (shares.length < size) shares = new Float32Array(size); else shares.fill(0, 0, size);
    return shares;
  }

  /* Draws shares as stacked colours, from the top. What a column of pixels cannot hold of a share is
     carried to the next, so that a row is as full as it was busy; but what is rare gets a pixel at
     least every few columns. */
  function stack(ctx, pal, x, y, width, height, whole) {
    if (!scratch) scratch = document.createElement("canvas");
    if (scratch.width < width) scratch.width = width;
    if (scratch.height < height) scratch.height = height;
    const into = scratch.getContext("2d"), image = into.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer), looks = pal.words.length;
    const tall = new Int32Array(looks), carried = new Float32Array(looks), last = new Int32Array(looks).fill(-APART - 1);
    for (let column = 0; column < width; column++) {
      let total = 0, at = column * looks, used = 0, largest = 0;
      for (let k = 0; k < looks; k++) total += shares[at + k];
      if (total <= 0) continue;
      const scale = height / Math.max(whole, total);
      for (let k = 0; k < looks; k++) {
        const share = shares[at + k];
        tall[k] = 0;
        if (share > 0) {
          const wanted = share * scale + carried[k];
          tall[k] = Math.max(column - last[k] > APART ? 1 : 0, Math.round(wanted));
          carried[k] = Math.max(-height, Math.min(height, wanted - tall[k]));
          if (tall[k]) last[k] = column;
        }
        used += tall[k];
        if (tall[k] > tall[largest]) largest = k;
      }
      if (used > height) tall[largest] = Math.max(1, tall[largest] - (used - height));
      for (let k = 0, row = 0; k < looks; k++) {
        const colour = pal.words[k];
        for (let n = tall[k]; n > 0 && row < height; n--, row++) pixels[row * width + column] = colour;
      }
    }
    into.putImageData(image, 0, 0);
    ctx.drawImage(scratch, 0, 0, width, height, x, y, width, height);
  }

  /* Sums a row into the shares; returns the spans that are boxes of their own (none with `all`). */
  function gather(data, pal, row, t0, t1, width, lit, all) {
    const [low, high] = ViewerData.visible(data, row, t0, t1);
    const { begin, wait, length, what, family } = data, looks = pal.words.length, half = pal.fills.length;
    const scale = width / (t1 - t0), least = BOX * pal.ratio, boxes = [];
    let small = false;
    for (let i = low; i < high; i++) {
      const a = (begin[i] - t0) * scale, b = a + wait[i] * scale, c = b + length[i] * scale;
      if (!all && c - a >= least) { boxes.push(i); continue; }
      small = true;
      const dim = lit && !lit[what[i]], look = dim ? 2 * half : family[what[i]];
      if (b > a) spread(shares, looks, width, a, b, dim ? look : look + half);
      spread(shares, looks, width, b, c, look);
    }
    return { boxes, small };
  }

  function row(ctx, data, pal, at, view, lit) {
    const { x, y, width, height } = at;
    ctx.fillStyle = at.compute ? pal.idle : pal.lane;
    ctx.fillRect(x, y, width, height);
    cleared(width * pal.words.length);
    const { boxes, small } = gather(data, pal, at.row, view.t0, view.t1, width, lit, false);
    if (small) stack(ctx, pal, x, y, width, height, 1);
    for (const i of boxes) box(ctx, data, pal, at, view, lit, i);
  }

  /* Many rows as one: the mean of what they do. */
  function band(ctx, data, pal, at, view, lit) {
    const { x, y, width, height } = at;
    ctx.fillStyle = pal.idle;
    ctx.fillRect(x, y, width, height);
    cleared(width * pal.words.length);
    for (const one of at.rows) gather(data, pal, one, view.t0, view.t1, width, lit, true);
    stack(ctx, pal, x, y, width, height, at.rows.length);
  }

  function box(ctx, data, pal, at, view, lit, i) {
    const scale = at.width / (view.t1 - view.t0), family = data.family[data.what[i]];
    const left = (data.begin[i] - view.t0) * scale, start = left + data.wait[i] * scale;
    const end = start + data.length[i] * scale, wide = end - left;
    const gap = wide < APART ? 0 : Math.min(pal.ratio, GAP * wide); // edges between pixels part narrow boxes
    const clip = value => at.x + Math.min(at.width, Math.max(0, value));
    const dim = lit && !lit[data.what[i]];
    if (start > left) {
      ctx.fillStyle = dim ? pal.dim : pal.waits[family];
      ctx.fillRect(clip(left), at.y, clip(start > left && end === start ? start - gap : start) - clip(left), at.height);
    }
    if (end > start) {
      ctx.fillStyle = dim ? pal.dim : pal.fills[family];
      ctx.fillRect(clip(start), at.y, Math.max(0, clip(end - gap) - clip(start)), at.height);
      if (!dim) caption(ctx, data, pal, at, clip(start), clip(end - gap), i, family);
    }
  }

  const widths = new Map();
  function measured(ctx, text) {
    const key = ctx.font + text;
    if (!widths.has(key)) {
      if (widths.size > 20000) widths.clear();
      widths.set(key, ctx.measureText(text).width);
    }
    return widths.get(key);
  }

  /* The microbatch, or the name where there is none: whole or not at all. */
  function caption(ctx, data, pal, at, left, right, i, family) {
    const room = right - left - 4 * pal.ratio;
    if (room < 6 * pal.ratio || at.height < 9 * pal.ratio) return;
    const number = data.microbatch[i], meaning = data.meanings[data.what[i]];
    const name = meaning[3] >= 0 ? data.facts.words[meaning[3]] : data.facts.words[meaning[0]];
    ctx.font = `${Math.min(11 * pal.ratio, at.height - 1)}px ${pal.font}`;
    const whole = number && data.numbered ? String(number - 1) : name;
    if (whole.length * 3 * pal.ratio > room || measured(ctx, whole) > room) return;
    ctx.fillStyle = pal.inks[family];
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(whole, (left + right) / 2, at.y + at.height / 2 + pal.ratio / 2);
  }

  /* The fill that a part of the legend stands for. */
  function swatch(pal, looks, part) {
    if (part.querySelector(".idle")) return pal.idle;
    if (part.querySelector(".waits")) return pal.waits[5];
    return part.dataset.look ? looks[part.dataset.look].fill : null;
  }

  return { swatch, palette, row, band, mixed, measured };
})();
