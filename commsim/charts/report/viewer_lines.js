"use strict";
/* The lines of the viewer: which rows it shows, in which groups, and how tall each is (CSS pixels). */

const ViewerLines = (() => {
  const KINDS = { node: "node", stage: "stage", replica: "replica" };

  /* The ways to group that tell lanes apart. */
  function choices(lanes) {
    const found = ["none"];
    for (const kind in KINDS) if (new Set(lanes.map(lane => lane[kind])).size > 1) found.push(kind);
    return found;
  }

  function usual(lanes) {
    const known = choices(lanes);
    if (lanes.length <= 32) return "none";
    return ["stage", "node", "replica"].find(kind => known.includes(kind)) || "none";
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
    const subs = facts.lanes.length ? facts.lanes[0].rows.length - 1 : 0;
    const per = (room - 20 * groups.length) / Math.max(1, lanes) - 4;
    const tall = Math.round(Math.min(34, Math.max(14, per / (1 + 0.42 * subs))));
    const low = Math.max(6, Math.round(tall * 0.42));
    let y = 0;
    for (const group of groups) {
      const shut = closed.has(group.key);
      if (group.label) {
        lines.push({ kind: "head", key: group.key, label: group.label, y, height: shut ? 26 : 20, shut, count: group.lanes.length, rows: group.lanes.map(at => facts.lanes[at].rows[0]) });
        y += (shut ? 26 : 20) + 3;
      }
      if (shut) continue;
      for (const at of group.lanes) {
        const lane = facts.lanes[at];
        lane.rows.forEach((row, sub) => {
          if (sub && !facts.counts[row]) return;
          const height = sub ? low : tall;
          lines.push({ kind: "row", row, lane: at, compute: !sub, label: sub ? "" : label(lane, byStage), y, height });
          y += height + 1;
        });
        y += 4;
      }
    }
    return { lines, height: Math.max(y, 1) };
  }

  return { choices, usual, build };
})();
