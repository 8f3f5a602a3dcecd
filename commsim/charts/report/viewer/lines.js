"use strict";
/* The lines of the viewer: which rows it shows, in which groups, and how tall each is (CSS pixels). */

const ViewerLines = (() => {
  const KINDS = ["node", "stage", "replica"], FEW = 32, MANY = 128, LOW = 0.44, NAMED = 9;

  /* The ways to group that put some lanes together, and not all of them. */
  function choices(lanes) {
    const groups = kind => new Set(lanes.map(lane => `${lane.run}/${lane[kind]}`)).size;
    const runs = new Set(lanes.map(lane => lane.run)).size;
    return ["none", ...KINDS.filter(kind => groups(kind) > runs && groups(kind) < lanes.length)];
  }

  function usual(lanes) {
    const known = choices(lanes);
    if (lanes.length <= FEW) return "none";
    return ["stage", "node", "replica"].find(kind => known.includes(kind)) || "none";
  }

  /* The groups that are folded at first: all of them where there are very many lanes. */
  function folded(facts, by) {
    const shut = by !== "none" && facts.lanes.length > MANY;
    return new Set(shut ? grouped(facts, by).map(group => group.key) : []);
  }

  /* The first row of a lane that anything is on: its second where nobody computes. */
  function main(facts) {
    const empty = facts.lanes.every(lane => !facts.counts[lane.rows[0]] && lane.rows.length > 1 + (lane.hosts || 0));
    return lane => lane.rows[empty && facts.lanes.length ? 1 : 0];
  }

  function label(lane, byStage) {
    if (byStage) return `stage ${lane.stage}`;
    return `rank ${lane.rank}` + (lane.times > 1 ? ` ×${lane.times.toLocaleString("en-US")}` : "");
  }

  /* Groups of lanes in order: [{ key, label, lanes }]; one without a label where nothing is grouped. */
  function grouped(facts, by) {
    const groups = new Map();
    facts.lanes.forEach((lane, at) => {
      const parts = [];
      if (facts.runs.length > 1) parts.push(facts.runs[lane.run]);
      if (by !== "none") parts.push(lane[by] < 0 ? `no ${by}` : `${by} ${lane[by]}`);
      const key = `${lane.run}/${by === "none" ? "" : lane[by]}`;
      if (!groups.has(key)) groups.set(key, { key, label: parts.join(" · "), run: lane.run, order: by === "none" ? 0 : lane[by], lanes: [] });
      groups.get(key).lanes.push(at);
    });
    return [...groups.values()].sort((a, b) => a.run - b.run || a.order - b.order);
  }

  function build(facts, by, closed, room) {
    const groups = grouped(facts, by), lines = [];
    const one = facts.runs.length === 1;
    const stages = new Set(facts.lanes.map(lane => lane.stage));
    const byStage = one && facts.lanes.length > 1 && stages.size === facts.lanes.length && !stages.has(-1);
    const open = groups.filter(group => !closed.has(group.key));
    const lanes = open.reduce((sum, group) => sum + group.lanes.length, 0);
    const first = main(facts), skipped = facts.lanes.length ? facts.lanes[0].rows.indexOf(first(facts.lanes[0])) : 0;
    const subs = facts.lanes.length ? facts.lanes[0].rows.length - 1 - skipped : 0;
    const per = (room - 20 * groups.length) / Math.max(1, lanes) - 4;
    const tall = Math.round(Math.min(34, Math.max(14, per / (1 + LOW * subs))));
    const low = Math.max(lanes <= FEW ? NAMED : 6, Math.round(tall * LOW));
    let y = 0;
    for (const group of groups) {
      const shut = closed.has(group.key);
      if (group.label) {
        lines.push({ kind: "head", key: group.key, label: group.label, y, height: shut ? 26 : 20, shut, count: group.lanes.length, rows: group.lanes.map(at => first(facts.lanes[at])) });
        y += (shut ? 26 : 20) + 3;
      }
      if (shut) continue;
      for (const at of group.lanes) {
        const lane = facts.lanes[at];
        const hosts = lane.hosts || 0, own = lane.rows.slice(skipped, lane.rows.length - hosts), name = row => lane.names ? facts.words[lane.names[lane.rows.indexOf(row)]] : "";
        const add = (row, sub) => {
          if (sub && !facts.counts[row]) return;
          const height = sub ? low : tall;
          lines.push({ kind: "row", row, lane: at, compute: !sub, label: sub ? "" : label(lane, byStage), name: sub && height >= NAMED ? name(row) : "", y, height });
          y += height + 1;
        };
        lane.rows.slice(lane.rows.length - hosts, lane.rows.length).forEach(row => add(row, 1)); // hosts launch: above
        own.forEach(add);
        y += 4;
      }
    }
    return { lines, height: Math.max(y, 1) };
  }

  return { choices, usual, folded, main, build };
})();
