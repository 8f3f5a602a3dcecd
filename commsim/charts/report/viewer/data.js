"use strict";
/* The data of the viewer: unpacked columns over spans, and what can be asked of them. Times are ticks. */

const ViewerData = (() => {
  const NAMES = ["begin", "wait", "length", "what", "size", "microbatch", "instance"];

  function bytesOf(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const letters = atob(text), bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
    return bytes;
  }

  async function inflate(text) {
    const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /* The inverse of columns.py: planes of bytes, lowest first. */
  async function column(name, count) {
    const element = document.querySelector(`script[data-column="${name}"]`);
    const planes = Number(element.dataset.planes), bytes = await inflate(element.textContent);
    element.remove();
    return joined(bytes, planes, count);
  }
  function joined(bytes, planes, count) {
    if (planes === 1) return bytes;
    const values = planes === 2 ? new Uint16Array(count) : new Uint32Array(count);
    for (let plane = 0; plane < planes; plane++) {
      const from = plane * count, shift = 8 * plane;
      for (let i = 0; i < count; i++) values[i] |= bytes[from + i] << shift;
    }
    return values;
  }

  async function load(facts) {
    const columns = {};
    for (const name of NAMES) columns[name] = await column(name, facts.spans);
    if (document.querySelector('script[data-column="launch"]')) columns.launch = await column("launch", facts.spans);
    return indexed(facts, columns);
  }

  /* The inverse of columns.blob: the length of the JSON, the JSON, the planes of its columns. */
  async function small(text, looks) {
    const bytes = await inflate(text), size = new DataView(bytes.buffer).getUint32(0, true);
    const facts = { ...JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))), looks }, columns = {};
    let at = 4 + size;
    for (const [name, planes] of facts.columns) {
      columns[name] = joined(bytes.subarray(at, at + planes * facts.spans), planes, facts.spans);
      at += planes * facts.spans;
    }
    return indexed(facts, columns);
  }

  function indexed(facts, columns) {
    const data = { facts, count: facts.spans, ...columns };
    data.first = new Uint32Array(facts.counts.length + 1);
    facts.counts.forEach((n, row) => { data.first[row + 1] = data.first[row] + n; });
    restoreTimes(data);
    data.meanings = facts.meanings;
    data.family = Uint8Array.from(facts.meanings, row => row[1]);
    data.numbered = data.microbatch.some(number => number > 1);
    if (data.launch) restoreLaunches(data);
    data.rowOfLane = new Map();
    facts.lanes.forEach((lane, at) => lane.rows.forEach(row => data.rowOfLane.set(row, at)));
    return data;
  }

  /* Turns gaps into begins, and keeps how far the boxes before and at each one reach. */
  function restoreTimes(data) {
    const { count, wait, length, first } = data;
    const begin = new Uint32Array(count), reach = new Uint32Array(count);
    for (let row = 0; row + 1 < first.length; row++) {
      let now = 0, far = 0;
      for (let i = first[row]; i < first[row + 1]; i++) {
        now += data.begin[i];
        begin[i] = now;
        const end = now + wait[i] + length[i];
        if (end > far) far = end;
        reach[i] = far;
      }
    }
    data.begin = begin;
    data.reach = reach;
  }

  /* Differences that wrap round become places plus one. */
  function restoreLaunches(data) {
    const launch = new Uint32Array(data.count);
    let now = 0;
    for (let i = 0; i < data.count; i++) { now = (now + data.launch[i]) >>> 0; launch[i] = now; }
    data.launch = launch;
  }
  const launcher = (data, i) => data.launch && data.launch[i] ? data.launch[i] - 1 : -1;
  /* What a span of the host launched; the index is made at the first question. */
  function launched(data, i) {
    if (!data.launch) return [];
    if (!data.launches) {
      data.launches = new Map();
      for (let k = 0; k < data.count; k++) if (data.launch[k]) { const by = data.launch[k] - 1; if (data.launches.has(by)) data.launches.get(by).push(k); else data.launches.set(by, [k]); }
    }
    return data.launches.get(i) || [];
  }

  /* The first place in [from, to) whose value is above `limit`; `to` if there is none. */
  function above(values, from, to, limit) {
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (values[middle] > limit) to = middle; else from = middle + 1;
    }
    return from;
  }

  function visible(data, row, t0, t1) {
    const from = data.first[row], to = data.first[row + 1];
    const low = above(data.reach, from, to, t0);
    return [low, above(data.begin, low, to, t1)];
  }

  const endOf = (data, i) => data.begin[i] + data.wait[i] + data.length[i];

  /* The span of a row at time t (the shortest where several are), or the nearest within `slack`. */
  function spanAt(data, row, t, slack) {
    const [low, high] = visible(data, row, t - slack, t + slack);
    let found = -1, best = Infinity;
    for (let i = high - 1; i >= low; i--) {
      const begin = data.begin[i], end = endOf(data, i);
      const off = t < begin ? begin - t : t > end ? t - end : 0;
      const badness = off * 1e12 + (end - begin);
      if (off <= slack && badness < best) { best = badness; found = i; }
    }
    return found;
  }

  function rowOf(data, i) { return above(data.first, 0, data.first.length, i) - 1; }
  function laneOf(data, i) { return data.facts.lanes[data.rowOfLane.get(rowOf(data, i))]; }

  /* The spans of one collective or message; the index is made at the first question. */
  function members(data, number) {
    if (!number) return [];
    if (!data.memberFirst) {
      const first = new Uint32Array(data.facts.instances + 2);
      for (let i = 0; i < data.count; i++) if (data.instance[i]) first[data.instance[i] + 1]++;
      for (let k = 1; k < first.length; k++) first[k] += first[k - 1];
      const fill = first.slice(), spans = new Uint32Array(first[first.length - 1]);
      for (let i = 0; i < data.count; i++) if (data.instance[i]) spans[fill[data.instance[i]]++] = i;
      data.memberFirst = first;
      data.memberSpans = spans;
    }
    return data.memberSpans.subarray(data.memberFirst[number], data.memberFirst[number + 1]);
  }

  /* Bytes per second on the bus as nccl-tests counts them, from the first start to the last end. */
  function busbw(data, i) {
    const factor = data.meanings[data.what[i]][5], size = data.facts.sizes[data.size[i]];
    if (!factor || size <= 0) return 0;
    let start = Infinity, end = 0;
    for (const m of members(data, data.instance[i])) {
      start = Math.min(start, data.begin[m] + data.wait[m]);
      end = Math.max(end, endOf(data, m));
    }
    return end > start ? size * factor / ((end - start) * data.facts.tick * 1e-12) : 0;
  }

  return { inflate, load, small, visible, above, spanAt, rowOf, laneOf, members, launcher, launched, busbw, endOf };
})();
