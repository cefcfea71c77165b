// ------------------------------------------------------------------------------------------------ the model

const ict = data.in_commit_timestamps, since = ict.enablement, res = data.resolution;
const commits = data.commits.map((raw, i) => ({
  raw, version: raw.version, ict: raw.in_commit_timestamp_ms, file: raw.file_modification_time_ms,
  inCommit: raw.clock === "in-commit", t: raw.timestamp_ms ?? raw.file_modification_time_ms,
  operation: raw.operation ?? "unknown", effect: data.effects[i], findings: [],
  did: Object.fromEntries(data.activity_fields.map((name, k) => [name, data.activity[i][k]])),
})).reverse();
const unknown = new Set(data.unknown_rows_removed); // Versions that removed rows and do not say how many.
const byVersion = new Map(commits.map((c) => [c.version, c]));
const latest = commits[commits.length - 1];
const resolveAt = resolver(ict, res, latest.version);

// What a check found, at the commits that it is about; findings about no commit of the page are listed only.
const SEVERITIES = ["error", "warning", "info"];
const findings = data.check === null ? [] : data.check.findings;
for (const each of findings) if (byVersion.has(each.version)) byVersion.get(each.version).findings.push(each);
const severest = (list) => SEVERITIES.find((severity) => list.some((each) => each.severity === severity));

// ------------------------------------------------------------------------------------------------ the head

const name = data.table.name || data.table.location.replace(/\/+$/, "").split("/").pop() || data.table.location;
$("name").textContent = visible(name);
$("where").textContent = visible(data.table.location);
$("lede").textContent = !ict.enabled
  ? "In-commit timestamps are off. TIMESTAMP AS OF goes by the modification times of the commit files, which change when the table is copied or restored."
  : since === null
    ? "In-commit timestamps are on since the first commit. TIMESTAMP AS OF goes by the time inside each commit, which stays true when the table is copied or restored."
    : `TIMESTAMP AS OF goes by the time inside each commit from version ${since.version} on, and by file modification times for every instant before that.`;
{
  // File times after the enablement, as in a copy: no instant leads to these versions.
  const lost = res.from_ms === null ? [] : res.file.filter(([, t]) => t >= res.from_ms).map(([version]) => version);
  if (ict.enabled && lost.length) {
    const range = lost.length === 1 ? `Version ${lost[0]} has a file time` : `Versions ${lost[0]} to ${lost[lost.length - 1]} have file times`;
    $("lede").append(" ", el("em", {}, `${range} after the enablement, so no instant leads there.`));
  }
}
const withBoth = commits.filter((c) => c.ict !== null);
{
  const tile = (term, value, note) => $("tiles").append(el("div", {}, el("dt", {}, term), el("dd", {}, value, el("small", {}, note))));
  const first = commits[0], times = commits.map((c) => c.t);
  const lo = least(times), hi = most(times);
  tile("Commits", count(commits.length), commits.length ? `versions ${first.version} to ${latest.version}` : "");
  tile("Over", span(hi - lo), day(lo) === day(hi) ? day(lo) : `${day(lo)} – ${day(hi)}`);
  tile("In-commit times", !ict.enabled ? "off" : since === null ? "on" : `since v${since.version}`,
    !ict.enabled ? "file times count" : since === null ? "since version 0" : iso(since.timestamp_ms).replace("T", " ").slice(0, 19) + "Z");
  if (withBoth.length) {
    const worst = withBoth.reduce((a, b) => Math.abs(b.file - b.ict) > Math.abs(a.file - a.ict) ? b : a);
    tile("Largest drift", drift(worst.file - worst.ict), `file time of v${worst.version}`);
  }
  const backwards = commits.filter((c, i) => i && c.file < commits[i - 1].file).length;
  if (backwards) tile("Out of order", count(backwards), backwards === 1 ? "file time runs back" : "file times run back");
}
// ------------------------------------------------------------------------------------------------ the state

const allTimes = [...new Set(commits.flatMap((c) => c.ict === null ? [c.file, c.t] : [c.file, c.ict, c.t])
  .concat(since ? [since.timestamp_ms] : []))].sort((a, b) => a - b);

const { breaks, stretches, axis, timeAt, ticksByStretch } = timeAxis(allTimes);
const ticks = (view, width) => ticksByStretch(view, width).flatMap((part) => part.ticks);
const around = (times) => padded(axis(least(times)), axis(most(times)));
const whole = around(allTimes);
// No drift: no file time leads elsewhere than its in-commit time does, up to the seconds in which stores keep times.
const SAME = withBoth.every((c) => Math.abs(c.file - c.ict) < 2000);
const state = { folded: SAME, view: whole, hover: null, selected: latest, cursor: latest.t, pointer: null, lit: null, brush: null, measure: null };

const { setView, zoom, move } = viewOf(state, whole, axis, draw);

// ------------------------------------------------------------------------------------------------ the plot

const MEASURES = [["rows", "Rows"], ["bytes", "Bytes"], ["files", "Files"]]
  .filter(([kind]) => commits.some((c) => c.did[kind + "_added"] || c.did[kind + "_removed"]));
state.measure = MEASURES.length ? MEASURES[0][0] : null;

const TOP = 28, ICT_Y = 104, BAR = 38;
let FILE_Y = 190; // Of the lane of file times: that of in-commit times while the lanes are folded.
let frame = null; // What the last drawing knows: scales and clusters, for the pointer.

// The commits of a lane by their places on the axis, which do not depend on what part of it is shown.
function laneOf(list, time) {
  return list.map((c) => [axis(time(c)), c]).sort((a, b) => a[0] - b[0]);
}
const LANES = { counted: laneOf(commits, (c) => c.t), ict: laneOf(withBoth, (c) => c.ict), file: laneOf(commits, (c) => c.file), drift: laneOf(withBoth, (c) => c.t) };

// Commits that would lie on each other become one mark. Only those in the view and beside it are looked at.
function clusters(lane, L, right) {
  const [from, to] = state.view, scale = (right - L) / (to - from), place = ([u]) => u;
  const last = firstAfter(lane, to + 400 / scale, place), found = [];
  let current = null;
  for (let i = firstAfter(lane, from - 400 / scale, place); i < last; i++) {
    const at = L + (lane[i][0] - from) * scale;
    if (current === null || at - current.from > 9) {
      current = { from: at, to: at, sum: 0, commits: [] };
      found.push(current);
    }
    current.to = at;
    current.sum += at;
    current.commits.push(lane[i][1]);
  }
  for (const each of found) each.x = each.sum / each.commits.length;
  return found;
}
const lit = (list) => state.lit === null || list.some((c) => c.effect === state.lit);

function draw() {
  const plot = $("plot"), W = Math.max(plot.clientWidth, 320), narrow = W < 640;
  const L = narrow ? 76 : 96, R = 16, right = W - R;
  const hasDrift = withBoth.length > 0 && !state.folded;
  FILE_Y = state.folded ? ICT_Y : 190;
  const driftTop = FILE_Y + 92, driftH = hasDrift ? 76 : state.folded ? -50 : 8;
  const sizeTop = driftTop + driftH + (hasDrift ? 46 : 40), sizeH = state.measure ? 72 : 0;
  const markTop = (state.measure ? sizeTop + sizeH : driftTop + driftH) + 6;
  const bottom = findings.length ? markTop + 22 : markTop, H = bottom + 42;
  const [from, to] = state.view;
  // While only the pointer moves, what is under it is drawn again and nothing else.
  const key = [W, from, to, state.folded, state.measure, state.lit, state.brush].join();
  if (frame !== null && frame.key === key) { drawPointed(frame); return; }
  const x = (t) => L + (axis(t) - from) / (to - from) * (right - L);
  const at = (px) => timeAt(from + (px - L) / (right - L) * (to - from));
  const root = svg("svg", { viewBox: `0 0 ${W} ${H}`, height: H, "aria-hidden": "true" });
  const clip = svg("clipPath", { id: "inside" });
  clip.append(svg("rect", { x: L, y: 0, width: right - L, height: H }));
  const defs = svg("defs");
  const hatch = svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  hatch.append(svg("line", { class: "grid", x1: 0, x2: 0, y1: 0, y2: 6 }));
  defs.append(clip, hatch);
  const inside = svg("g", { "clip-path": "url(#inside)" }), range = svg("g"), focus = svg("g"), cursor = svg("g");
  root.append(defs);

  const eras = drawEra(root, x, L, right, bottom);
  for (const tick of ticks(state.view, right - L)) root.append(svg("line", { class: "grid", x1: x(tick.t), x2: x(tick.t), y1: TOP + 26, y2: bottom }));
  root.append(inside);

  // Lanes
  const counted = clusters(LANES.counted, L, right);
  const upper = state.folded ? counted : clusters(LANES.ict, L, right);
  const lower = state.folded ? counted : clusters(LANES.file, L, right);
  if (state.folded) root.append(label(0, ICT_Y - 2, "Commit"), label(0, ICT_Y + 13, "time"));
  else {
    root.append(label(0, ICT_Y - 2, "In-commit"), label(0, ICT_Y + 13, "time"), label(0, FILE_Y - 2, "File"), label(0, FILE_Y + 13, narrow ? "time" : "modification"));
    if (!narrow) root.append(label(0, FILE_Y + 28, "time"));
  }
  for (const y of new Set([ICT_Y, FILE_Y])) inside.append(svg("line", { class: "base", x1: L, x2: right, y1: y, y2: y }));
  if (!state.folded) drawLinks(inside, upper, lower, x, L, right);
  inside.append(range);
  if (state.folded) drawMarks(inside, counted, ICT_Y, -1, () => true, (c) => c.t, x, L, right);
  else {
    drawMarks(inside, upper, ICT_Y, -1, (c) => c.inCommit, (c) => c.ict, x, L, right);
    drawMarks(inside, lower, FILE_Y, 1, (c) => !c.inCommit, (c) => c.file, x, L, right);
    if (!withBoth.length) inside.append(svg("text", { class: "gap-text", x: (L + right) / 2, y: ICT_Y - 10, "text-anchor": "middle" }, "no commit carries an in-commit time"));
  }

  if (hasDrift) drawDrift(root, inside, clusters(LANES.drift, L, right), driftTop, driftH, L, right);
  if (state.measure) drawSizes(root, inside, counted, sizeTop, sizeH, L, right);
  if (findings.length) drawFindings(root, inside, counted, markTop + 11, L, right);
  drawAxis(root, x, bottom, L, right);
  if (state.brush) inside.append(svg("rect", { class: "brush", x: Math.min(...state.brush), y: TOP, width: Math.abs(state.brush[1] - state.brush[0]), height: bottom - TOP }));
  inside.append(focus);
  root.append(cursor, ...eras);

  plot.replaceChildren(root);
  frame = { key, W, x, at, L, right, upper, lower, counted, bottom, range, focus, cursor };
  drawPointed(frame);
  drawOverview(W, L, right);
}
function drawPointed({ W, x, L, right, bottom, range, focus, cursor }) {
  for (const group of [range, focus, cursor]) group.replaceChildren();
  drawRange(range, x, L, right);
  drawFocus(focus, x);
  const flag = drawCursor(cursor, x, L, right, bottom);
  if (flag) placeFlag(flag, W);
}

function label(x, y, text) { return svg("text", { class: "lane", x, y }, text); }

function drawEra(root, x, L, right, end) {
  const top = TOP, bottom = FILE_Y + BAR + 14, y = TOP + 17;
  const edge = !ict.enabled ? right : since === null ? L : Math.min(Math.max(x(since.timestamp_ms), L), right);
  if (edge > L) root.append(svg("rect", { class: "era", x: L, y: top, width: edge - L, height: bottom - top }));
  const before = fitted(edge - L - 20, ict.enabled
    ? ["for instants before the enablement file modification time counts", "file modification time counts", "file time counts", "file time"]
    : ["in-commit timestamps are off: file modification time counts", "file modification time counts", "file time"]);
  const texts = [];
  if (before) texts.push(svg("text", { class: "era-text", x: ict.enabled ? edge - 10 : (L + edge) / 2, y, "text-anchor": ict.enabled ? "end" : "middle" }, before));
  const after = fitted(right - edge - 20, since
    ? [`in-commit time counts, since version ${since.version}`, "in-commit time counts", "in-commit time", "in-commit"]
    : ["in-commit time counts, since version 0", "in-commit time counts", "in-commit"]);
  if (after && ict.enabled) texts.push(svg("text", { class: "now-text", x: edge + (since ? 10 : 0), y }, after));
  if (since && edge > L && edge < right) {
    root.append(svg("line", { class: "since", x1: edge, x2: edge, y1: top, y2: end }));
  }
  return texts;
}
function drawLinks(g, upper, lower, x, L, right) {
  // Lines that would lie on each other become one; a mark of several commits keeps the true places of its lines.
  const pairs = new Map();
  for (const c of new Set([...upper, ...lower].flatMap((cluster) => cluster.commits))) {
    if (c.ict === null) continue;
    const a = x(c.ict), b = x(c.file), key = Math.round(a / 4) * 1e6 + Math.round(b / 4);
    const pair = pairs.get(key) || { a, b, commits: [] };
    pair.commits.push(c);
    pairs.set(key, pair);
  }
  for (const { a, b, commits: list } of pairs.values()) {
    if (Math.max(a, b) < L || Math.min(a, b) > right) continue;
    g.append(svg("path", { class: "link" + (lit(list) ? "" : " quiet"), d: curve(a, b), "stroke-width": Math.min(3, 1 + Math.log2(list.length) / 3).toFixed(1), "stroke-opacity": pairs.size > 60 ? 0.55 : 1 }));
  }
}
function curve(a, b) {
  const y1 = ICT_Y + 3, y2 = FILE_Y - 3, middle = (y1 + y2) / 2;
  return `M${a.toFixed(1)} ${y1}C${a.toFixed(1)} ${middle} ${b.toFixed(1)} ${middle} ${b.toFixed(1)} ${y2}`;
}

function drawMarks(g, list, y, direction, counts, time, x, L, right) {
  const crowded = list.length > 50;
  list.forEach((cluster, i) => {
    const { commits: members } = cluster, n = members.length;
    if (n === 1 && !crowded) {
      const [c] = members;
      g.append(svg("circle", { class: opClass(c.effect) + (counts(c) ? " solid" : " ghost") + (lit(members) ? "" : " quiet"), cx: x(time(c)), cy: y, r: counts(c) ? 5 : 4.2 }));
      return;
    }
    const height = Math.min(BAR, 9 + 5 * Math.log2(n)), width = 8;
    const groups = new Map();
    for (const c of members) {
      const key = (counts(c) ? "1" : "0") + c.effect;
      groups.set(key, (groups.get(key) || 0) + 1);
    }
    const outline = y + (direction < 0 ? -height : 0);
    let offset = 0;
    const parts = [...groups].sort((a, b) => (a[0][0] === b[0][0] ? b[1] - a[1] : a[0] < b[0] ? 1 : -1));
    // A rare operation stays visible: no part is thinner than two pixels.
    const thin = Math.min(2, height / parts.length), rest = height - thin * parts.length;
    for (const [key, k] of parts) {
      const part = thin + rest * k / n;
      const top = direction < 0 ? y - offset - part : y + offset;
      const quiet = state.lit !== null && key.slice(1) !== state.lit;
      g.append(svg("rect", { class: opClass(key.slice(1)) + (quiet ? " quiet" : ""), x: cluster.x - width / 2, y: top, width, height: part + (offset + part < height - 0.1 ? 0.4 : 0), "fill-opacity": key[0] === "1" ? 1 : 0.32 }));
      offset += part;
    }
    const before = i ? cluster.x - list[i - 1].x : 99, after = i + 1 < list.length ? list[i + 1].x - cluster.x : 99;
    if (n === 1) return;
    const text = "×" + count(n), room = text.length * 6.5 + 10;
    if (before > room / 2 + 8 && after > room / 2 + 8 && cluster.x - room / 2 > L && cluster.x + room / 2 < right)
      g.append(svg("text", { class: "many", x: cluster.x, y: direction < 0 ? outline - 5 : outline + height + 13, "text-anchor": "middle" }, text));
  });
}

function panelFrame(root, top, right, title, subs) {
  const text = svg("text", { class: "title", x: 0, y: top - 14 });
  text.append(svg("tspan", { class: "lane" }, title), svg("tspan", { class: "sub", dx: 8 }, fitted(right - 10 - title.length * 8, subs) || ""));
  root.append(text);
}
function scaleLabels(root, L, right, entries) {
  const taken = [];
  for (const [y, text, strong] of entries) {
    if (taken.some((other) => Math.abs(other - y) < 13)) continue;
    taken.push(y);
    root.append(svg("text", { class: "tick", x: L - 10, y: y + 4, "text-anchor": "end" }, text));
    if (strong) root.append(svg("line", { class: "base", x1: L, x2: right, y1: y, y2: y }));
  }
}

function drawDrift(root, g, list, top, height, L, right) {
  panelFrame(root, top, right, "Drift", ["file time − in-commit time"]);
  const near = list.filter((c) => c.to >= L && c.from <= right).flatMap((c) => c.commits).map((c) => c.file - c.ict);
  let low = Math.min(0, least(near)), high = Math.max(0, most(near));
  if (low === high) { low = -1; high = 1; }
  const y = (value) => top + (high - value) / (high - low) * height;
  scaleLabels(root, L, right, [[y(0), "0", true], [y(high), drift(high), high !== 0], [y(low), drift(low), low !== 0]]);
  for (const cluster of list) {
    const values = cluster.commits.map((c) => c.file - c.ict);
    const a = y(Math.max(0, most(values))), b = y(Math.min(0, least(values)));
    const [c] = cluster.commits, single = cluster.commits.length === 1;
    const kind = single ? opClass(c.effect) : opClass(modal(cluster.commits));
    const quiet = lit(cluster.commits) ? "" : " quiet";
    g.append(svg("rect", { class: kind + quiet, x: cluster.x - (single ? 1 : 3), y: a, width: single ? 2 : 6, height: Math.max(b - a, 0.5), "fill-opacity": single ? 0.6 : 0.45 }));
    if (single) g.append(svg("circle", { class: kind + (c.inCommit ? " solid" : " ghost") + quiet, cx: cluster.x, cy: y(values[0]), r: 3.4 }));
    else for (const end of new Set([most(values), least(values)])) g.append(svg("rect", { class: kind + quiet, x: cluster.x - 3, y: y(end) - 1.5, width: 6, height: 3 }));
  }
}
function modal(list) {
  const tally = new Map();
  for (const c of list) tally.set(c.effect, (tally.get(c.effect) || 0) + 1);
  return [...tally].reduce((a, b) => b[1] > a[1] ? b : a)[0];
}

function drawSizes(root, g, list, top, height, L, right) {
  const added = state.measure + "_added", removed = state.measure + "_removed", bytes = state.measure === "bytes";
  const near = list.filter((c) => c.to >= L && c.from <= right);
  for (const c of list) {
    c.up = c.commits.reduce((n, k) => n + (k.did[added] || 0), 0);
    c.down = c.commits.reduce((n, k) => n + (k.did[removed] || 0), 0);
  }
  const anyDown = near.some((c) => c.down), joined = near.some((c) => c.commits.length > 1);
  const title = MEASURES.find(([kind]) => kind === state.measure)[1];
  const what = anyDown ? ["added above the line, removed below", "added above, removed below"] : ["added"];
  panelFrame(root, top, right, title, joined ? [what[0] + "; summed where commits share a place", ...what.map((text) => text + "; summed"), ...what] : what);
  const high = Math.max(1, most(near.map((c) => c.up))), low = Math.max(0, most(near.map((c) => c.down)));
  const y = (value) => top + (high - value) / (high + low) * height;
  scaleLabels(root, L, right, [[y(0), "0", true], [y(high), compact(high, bytes), false], ...(low ? [[y(-low), "−" + compact(low, bytes), false]] : [])]);
  for (const c of list) {
    const kind = opClass(modal(c.commits)) + (lit(c.commits) ? "" : " quiet");
    if (c.up) g.append(svg("rect", { class: kind, x: c.x - 4, y: y(c.up), width: 8, height: Math.max(y(0) - y(c.up), 1), rx: 1.5 }));
    if (c.down) g.append(svg("rect", { class: kind, x: c.x - 4, y: y(0), width: 8, height: Math.max(y(-c.down) - y(0), 1), rx: 1.5, "fill-opacity": 0.4 }));
  }
}

// On the axis a mark at each place with findings, in the colour of the severest.
function drawFindings(root, g, list, y, L, right) {
  root.append(label(0, y + 4, "Findings"));
  g.append(svg("line", { class: "base", x1: L, x2: right, y1: y, y2: y }));
  for (const cluster of list) {
    const severity = severest(cluster.commits.flatMap((c) => c.findings));
    if (severity === undefined) continue;
    const px = cluster.commits.length === 1 ? cluster.from : cluster.x;
    g.append(svg("path", { class: "finding " + severity, d: `M${px.toFixed(1)} ${y - 7}l6.5 12h-13z` }));
  }
}

function drawAxis(root, x, bottom, L, right) {
  for (const each of breaks) {
    const a = x(each.from), b = x(each.to), middle = (a + b) / 2;
    if (b < L || a > right || b - a < 3) continue;
    const left = Math.max(a, L), width = Math.min(b, right) - left;
    if (width <= 0) continue;
    root.append(svg("rect", { class: "break", x: left, y: TOP + 26, width, height: bottom - TOP - 26 }));
    const text = span(each.to - each.from);
    if (middle > L && middle < right && b - a > text.length * 5) root.append(svg("text", { class: "tick", x: middle, y: bottom + 18, "text-anchor": "middle" }, text));
  }
  let last = null, free = -Infinity, freeUnder = -Infinity;
  const under = (px, text) => {
    const half = text.length * 3.4;
    if (text === last || px - half <= freeUnder || px + half > right + 14) return;
    root.append(svg("text", { class: "day", x: px, y: bottom + 34, "text-anchor": "middle" }, text));
    last = text;
    freeUnder = px + half + 10;
  };
  for (const list of ticksByStretch(state.view, right - L)) {
    let placed = false;
    for (const tick of list.ticks) {
      const px = x(tick.t), half = tick.label.length * 3.1;
      if (px - half < Math.max(L - 40, free) || px + half > right + 14) continue;
      if (breaks.some((each) => px + half > x(each.from) - 4 && px - half < x(each.to) + 4)) continue;
      free = px + half + 10;
      placed = true;
      root.append(svg("text", { class: "tick", x: px, y: bottom + 18, "text-anchor": "middle" }, tick.label));
      under(px, tick.under);
    }
    // A stretch too short for a tick says at least which day it is.
    if (!placed) {
      const first = allTimes.find((t) => t >= list.from && t <= list.to && x(t) >= L && x(t) <= right);
      if (first !== undefined) under(x(first), day(first));
    }
  }
  root.append(svg("text", { class: "tick", x: 0, y: bottom + 18 }, "UTC"));
}

// The span of time in which the version under the cursor is the answer.
function drawRange(g, x, L, right) {
  const found = answer();
  if (!found || found.unknown !== undefined || found.early) return;
  const y = found.clock === "in-commit" ? ICT_Y : FILE_Y;
  const a = Math.max(x(found.t), L - 5), b = found.until === null ? x(found.t) : Math.min(x(found.until), right + 5);
  if (b > a) g.append(svg("rect", { class: "window", x: a, y: y - 4, width: b - a, height: 8, rx: 4 }));
}
function answer() {
  const ms = state.pointer ?? state.cursor;
  return ms === null ? null : resolveAt(Math.floor(ms));
}

function drawFocus(g, x) {
  const c = shown();
  if (!c) return;
  if (state.folded) { g.append(svg("circle", { class: "ring", cx: x(c.t), cy: ICT_Y, r: 8.5 })); return; }
  if (c.ict !== null) {
    g.append(svg("path", { class: "link on", d: curve(x(c.ict), x(c.file)) }));
    g.append(svg("circle", { class: "ring", cx: x(c.ict), cy: ICT_Y, r: 8.5 }));
  }
  g.append(svg("circle", { class: "ring", cx: x(c.file), cy: FILE_Y, r: 8.5 }));
}

function drawCursor(root, x, L, right, bottom) {
  const ms = state.pointer ?? state.cursor;
  if (ms === null) return;
  const px = x(ms), found = answer();
  if (px < L - 1 || px > right + 1) return;
  const refused = found.unknown !== undefined || found.early || found.late;
  const what = found.unknown !== undefined ? "no answer" : found.older ? "older" : found.early ? "refused: before the first" : found.late ? "refused: after the last" : "v" + found.version;
  const time = iso(Math.floor(ms)).replace("T", " ");
  const flag = { px, texts: [time + "  →  " + what, time.slice(time.indexOf(" ") + 1) + "  →  " + what, what],
    box: svg("rect", { class: "flag" + (refused ? " no" : ""), y: 1, height: 21, rx: 6 }), text: svg("text", { class: "flag-text", y: 15.5, "text-anchor": "middle" }) };
  root.append(svg("line", { class: "cursor", x1: px, x2: px, y1: 22, y2: bottom }), flag.box, flag.text);
  return flag;
}
// Text has a width only in the document: the fullest text that has room, in a box that has room for it.
function placeFlag({ px, texts, box, text }, W) {
  let width = 0;
  for (const each of texts) {
    text.textContent = each;
    width = Math.ceil(text.getComputedTextLength()) + 18;
    if (width <= W) break;
  }
  const left = Math.max(Math.min(px - width / 2, W - width), 0);
  box.setAttribute("x", left);
  box.setAttribute("width", width);
  text.setAttribute("x", left + width / 2);
}

// --------------------------------------------------------------------------------------------- the overview

// What does not depend on the view is drawn once for each width.
function overviewBase(W, L, right) {
  const H = 40, root = svg("g");
  const place = (u) => L + (u - whole[0]) / (whole[1] - whole[0]) * (right - L), x = (t) => place(axis(t));
  const bins = new Map();
  for (const [u] of LANES.counted) {
    const key = Math.floor((place(u) - L) / 4);
    bins.set(key, (bins.get(key) || 0) + 1);
  }
  const fullest = Math.log2(1 + most([...bins.values()]));
  root.append(svg("text", { class: "tick", x: 0, y: 24 }, "All"));
  if (ict.enabled ? since !== null : true) {
    const edge = ict.enabled ? x(since.timestamp_ms) : right;
    root.append(svg("rect", { class: "era", x: L, y: 2, width: Math.max(edge - L, 0), height: H - 4 }));
  }
  root.append(svg("line", { class: "base", x1: L, x2: right, y1: H - 2.5, y2: H - 2.5 }));
  for (const [key, n] of bins) {
    const height = Math.max(3, Math.log2(1 + n) / fullest * (H - 10));
    root.append(svg("rect", { class: "bin", x: L + key * 4, y: H - 3 - height, width: 3, height }));
  }
  return { W, L, x, place, root };
}
function drawOverview(W, L, right) {
  if (base === null || base.W !== W || base.L !== L) base = overviewBase(W, L, right);
  const H = 40, { place, x } = base, root = svg("svg", { viewBox: `0 0 ${W} ${H}`, height: H });
  root.append(base.root);
  let a = Math.max(place(state.view[0]), L), b = Math.min(place(state.view[1]), right);
  if (b - a < 6) { const middle = (a + b) / 2; a = middle - 3; b = middle + 3; }
  for (const [from, to] of [[L, a], [b, right]]) if (to > from) root.append(svg("rect", { class: "veil", x: from, y: 0, width: to - from, height: H }));
  root.append(svg("rect", { class: "frame", x: a, y: 2, width: b - a, height: H - 4, rx: 4 }));
  for (const edge of [a, b]) root.append(svg("rect", { class: "grip", x: edge - 1.5, y: H / 2 - 7, width: 3, height: 14, rx: 1.5 }));
  $("overview").replaceChildren(root);
  overview = { x, a, b, L, right, at: (px) => whole[0] + (px - L) / (right - L) * (whole[1] - whole[0]) };
}
let base = null;
let overview = null;

// --------------------------------------------------------------------------------------------- the pointer

function under(px, py) {
  const lanes = [[frame.upper, ICT_Y], [frame.lower, FILE_Y], [frame.counted, 0]];
  const order = state.folded ? [lanes[2]] : py < (ICT_Y + FILE_Y) / 2 ? [lanes[0], lanes[1]] : py < FILE_Y + BAR + 16 ? [lanes[1], lanes[0]] : [lanes[2]];
  for (const [list] of order) {
    let best = null;
    for (const c of list) {
      const distance = px < c.from ? c.from - px : px > c.to ? px - c.to : 0;
      if (distance <= 9 && (best === null || distance < best[0])) best = [distance, c];
    }
    if (best) return best[1];
  }
  return null;
}
const shown = () => state.hover && state.hover.length === 1 ? state.hover[0] : state.selected;

function tip(cluster, event) {
  const box = $("tip");
  if (!cluster) { box.hidden = true; return; }
  const list = cluster.commits, [c] = list;
  const lines = [];
  if (list.length === 1) {
    box.replaceChildren(el("b", {}, `v${c.version}  ${visible(c.operation)}`));
    lines.push(c.ict === null ? "no in-commit time" : `in-commit ${iso(c.ict)}`, `file ${iso(c.file)}`);
    if (c.ict !== null) lines.push(`drift ${drift(c.file - c.ict)}`);
    const did = doings(c);
    if (did) lines.push(did);
    for (const each of c.findings.slice(0, 3)) lines.push(`${each.severity}: ${visible(each.rule)}`);
    if (c.findings.length > 3) lines.push(`and ${plural(c.findings.length - 3, "more finding")}`);
  } else {
    const versions = list.map((k) => k.version);
    box.replaceChildren(el("b", {}, `${count(list.length)} commits, v${least(versions)} to v${most(versions)}`));
    const tally = new Map();
    for (const k of list) tally.set(k.operation, (tally.get(k.operation) || 0) + 1);
    for (const [operation, n] of [...tally].sort((a, b) => b[1] - a[1]).slice(0, 5)) lines.push(`${count(n)} × ${visible(operation)}`);
    const n = list.reduce((sum, k) => sum + k.findings.length, 0);
    if (n) lines.push(plural(n, "finding"));
    lines.push("click to look closer");
  }
  for (const line of lines) box.append(el("span", {}, line));
  box.hidden = false;
  const { offsetWidth: w, offsetHeight: h } = box, margin = 14;
  const left = event.clientX + margin + w > document.documentElement.clientWidth - 8 ? event.clientX - margin - w : event.clientX + margin;
  const top = event.clientY + margin + h > window.innerHeight - 8 ? event.clientY - margin - h : event.clientY + margin;
  box.style.left = Math.max(4, left) + window.scrollX + "px";
  box.style.top = Math.max(4, top) + window.scrollY + "px";
}
function doings(c) {
  const parts = [];
  for (const [kind, one] of [["rows", "row"], ["files", "file"]]) {
    if (c.did[kind + "_added"]) parts.push("+" + plural(c.did[kind + "_added"], one));
    if (c.did[kind + "_removed"]) parts.push("−" + plural(c.did[kind + "_removed"], one));
    else if (kind === "rows" && unknown.has(c.version)) parts.push("−? rows");
  }
  if (c.did.bytes_added) parts.push(compact(c.did.bytes_added, true));
  return parts.join(", ");
}

{
  const plot = $("plot");
  let down = null;
  const local = (event) => { const box = plot.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  plot.addEventListener("pointermove", (event) => {
    const [px, py] = local(event);
    if (down !== null && Math.abs(px - down) > 4) state.brush = [Math.max(down, frame.L), Math.min(Math.max(px, frame.L), frame.right)];
    const inside = px >= frame.L && px <= frame.right;
    const cluster = inside && !state.brush ? under(px, py) : null;
    state.pointer = inside ? frame.at(px) : null;
    // On a mark the cursor snaps to the commit's own time, by the clock that counts.
    if (cluster && cluster.commits.length === 1) state.pointer = cluster.commits[0].t;
    state.hover = cluster ? cluster.commits : null;
    update();
    tip(cluster, event);
  });
  plot.addEventListener("pointerleave", () => { state.pointer = null; state.hover = null; tip(null); update(); });
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    down = local(event)[0];
    if (event.pointerType === "mouse") plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointerup", (event) => {
    const brush = state.brush, [px, py] = local(event);
    const wasDown = down !== null;
    down = null;
    state.brush = null;
    if (brush && Math.abs(brush[1] - brush[0]) > 6) { setView(axis(frame.at(Math.min(...brush))), axis(frame.at(Math.max(...brush)))); return; }
    if (!wasDown || px < frame.L || px > frame.right) { update(); return; }
    const cluster = under(px, py);
    if (cluster && cluster.commits.length > 1) {
      const times = cluster.commits.map((c) => frame.lower.includes(cluster) ? c.file : frame.upper.includes(cluster) ? c.ict : c.t);
      tip(null);
      setView(...around(times));
      return;
    }
    if (cluster) select(cluster.commits[0]);
    else { state.cursor = Math.floor(frame.at(px)); state.selected = byVersion.get(answer().version) || state.selected; update(); }
  });
  plot.addEventListener("pointercancel", () => { down = null; state.brush = null; update(); });
  plot.addEventListener("dblclick", () => setView(...whole));
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY * 0.004), frame.at(local(event)[0]));
    else move(event.deltaX / 900);
  }, { passive: false });
  plot.addEventListener("keydown", (event) => {
    const i = commits.indexOf(state.selected), last = commits.length - 1;
    const to = { ArrowRight: Math.min(i + 1, last), ArrowLeft: Math.max(i - 1, 0), PageDown: Math.min(i + 10, last), PageUp: Math.max(i - 10, 0), Home: 0, End: last }[event.key];
    if (to !== undefined && !event.altKey && !event.ctrlKey && !event.metaKey) select(commits[to], true);
    else if (event.key === "+" || event.key === "=") zoom(0.5, state.cursor);
    else if (event.key === "-") zoom(2, state.cursor);
    else if (event.key === "0" || event.key === "Escape") setView(...whole);
    else return;
    event.preventDefault();
  });

  const strip = $("overview");
  let drag = null;
  strip.addEventListener("pointerdown", (event) => {
    const px = event.clientX - strip.getBoundingClientRect().left;
    const [a, b] = state.view;
    if (Math.abs(px - overview.a) < 7 && overview.b - overview.a > 14) drag = { edge: 0, a, b };
    else if (Math.abs(px - overview.b) < 7 && overview.b - overview.a > 14) drag = { edge: 1, a, b };
    else {
      if (px < overview.a || px > overview.b) { const at = overview.at(px), half = (b - a) / 2; setView(at - half, at + half); }
      drag = { edge: null, a: state.view[0], b: state.view[1] };
    }
    drag.from = overview.at(px);
    strip.setPointerCapture(event.pointerId);
  });
  strip.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const at = overview.at(event.clientX - strip.getBoundingClientRect().left), by = at - drag.from;
    if (drag.edge === null) setView(drag.a + by, drag.b + by);
    else if (drag.edge === 0) setView(Math.min(at, drag.b - 4), drag.b);
    else setView(drag.a, Math.max(at, drag.a + 4));
  });
  for (const end of ["pointerup", "pointercancel"]) strip.addEventListener(end, () => { drag = null; });
}

function select(c, follow) {
  state.selected = c;
  state.cursor = c.t;
  state.hover = null;
  state.pointer = null;
  if (follow) {
    const [a, b] = state.view, at = axis(c.t);
    if (at < a || at > b) setView(at - (b - a) / 2, at + (b - a) / 2);
  }
  update();
}
let waiting = false;
function update() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); cards(); markRow(); });
}

// ------------------------------------------------------------------------------------------------ the cards

function cards() {
  const ms = state.pointer ?? state.cursor, found = answer();
  const input = $("instant");
  if (document.activeElement !== input) input.value = iso(Math.floor(ms));
  const box = $("answer"), clock = found.clock === "in-commit" ? "in-commit times" : "file modification times";
  const refused = found.unknown !== undefined || found.early || found.late;
  box.className = "answer" + (refused ? " no" : "");
  const why = [];
  if (found.unknown !== undefined) {
    box.textContent = "The log cannot tell";
    why.push(`Version ${found.unknown} must carry an in-commit time and does not.`);
  } else if (found.older) {
    box.textContent = "Older than this page";
    why.push(`${plural(data.left_off, "older commit")} left off; deltalog timeline --limit 0 shows all.`);
  } else {
    box.textContent = found.early ? "Refused: before the first" : found.late ? "Refused: after the last" : "Version " + found.version;
    if (!ict.enabled) why.push("In-commit timestamps are off, so file modification times count.");
    else if (res.from_ms === null) why.push("In-commit times count for every instant.");
    else if (found.clock === "in-commit") why.push(`In-commit times count: the instant is not before the enablement, ${iso(res.from_ms)}.`);
    else why.push(`File modification times count: the instant is before the enablement, ${iso(res.from_ms)}. Candidates are versions ${found.candidates[0]} to ${found.candidates[1]}.`);
    if (found.early) why.push(`The first of the candidates is version ${found.version} at ${iso(found.t)}.`);
    else if (found.late) why.push(`The last commit is version ${found.version} at ${iso(found.t)}.`);
    else why.push(`Version ${found.version} was committed at ${iso(found.t)}` + (found.until === null ? "." : `, and stays the answer until ${iso(found.until)}.`));
    if (found.clock !== "in-commit") why.push("A copy or a restored table has other file times, and gives another answer.");
  }
  $("why").replaceChildren(...why.join("\n").split(/(\d{4}-\d\d-\d\dT[\d:.]+Z)/).map((part, i) => i % 2 ? el("span", { class: "nb" }, part) : part));
  commitCard(shown());
}

function commitCard(c) {
  const title = $("commit-title"), list = $("commit");
  title.replaceChildren(el("i", { class: opClass(c.effect) }), `Version ${c.version}  ·  ${visible(c.operation)}`);
  const rows = [];
  const time = (ms) => el("span", {}, iso(ms), el("span", { class: "ms" }, `${ms} ms`));
  rows.push(["Clock that counts", badge(c)]);
  rows.push(["In-commit time", c.ict === null ? "none" : time(c.ict)]);
  rows.push(["File modification", time(c.file)]);
  if (c.ict !== null) rows.push(["Drift", drift(c.file - c.ict)]);
  if (!c.inCommit && c.raw.timestamp_ms !== null && c.raw.timestamp_ms !== c.file) rows.push(["Counts as", time(c.raw.timestamp_ms)]);
  const did = doings(c);
  if (did) rows.push(["Did", did]);
  for (const each of c.findings.slice(0, 5)) rows.push(["Found", el("span", {}, el("span", { class: "severity " + each.severity }, each.severity), " " + visible(each.message))]);
  const pairs = (object) => {
    const keys = Object.keys(object);
    if (!keys.length) return null;
    const box = el("span", {});
    keys.forEach((key, i) => box.append(i ? "\n" : "", el("span", { class: "key" }, visible(key) + ": "), value(object[key])));
    return box;
  };
  const more = [["Parameters", pairs(c.raw.operation_parameters)], ["Metrics", pairs(c.raw.operation_metrics)]];
  rows.push(["User metadata", c.raw.user_metadata === null ? null : visible(c.raw.user_metadata)]);
  more.push(["Engine", c.raw.engine_info === null ? null : visible(c.raw.engine_info)]);
  more.push(["Read version", c.raw.read_version === null ? null : String(c.raw.read_version)]);
  more.push(["Isolation", c.raw.isolation_level === null ? null : visible(c.raw.isolation_level) + (c.raw.is_blind_append ? ", blind append" : "")]);
  more.push(["Transaction", c.raw.txn_id === null ? null : visible(c.raw.txn_id)], ["Commit file", plural(c.raw.size_bytes, "byte")]);
  const column = (chosen) => el("dl", {}, ...chosen.filter(([, v]) => v !== null).flatMap(([term, v]) => [el("dt", {}, term), el("dd", {}, v)]));
  list.replaceChildren(column(rows), column(more));
}
function value(v) {
  const text = visible(typeof v === "string" ? v : JSON.stringify(v));
  return text.length > 2000 ? text.slice(0, 2000) + "…" : text;
}
function badge(c) {
  return el("span", { class: "badge " + (c.inCommit ? "ict" : "file") }, c.inCommit ? "in-commit time" : "file time");
}

// --------------------------------------------------------------------------------------------- the findings

if (data.check !== null) {
  const { counts } = data.check, box = $("findings");
  $("checked").hidden = false;
  $("checked").classList.toggle("clean", !findings.length);
  $("findings-title").textContent = findings.length ? "Findings: " + SEVERITIES.filter((s) => counts[s]).map((s) => plural(counts[s], s)).join(", ").replace(/infos\b/, "info") : `A check of version ${data.check.version} found nothing.`;
  for (const each of findings.slice(0, 200)) {
    const c = byVersion.get(each.version), place = each.version === null ? "" : "v" + each.version;
    const go = c ? el("button", { type: "button" }, place) : place;
    if (c) go.addEventListener("click", () => select(c, true));
    box.append(el("li", {}, el("span", { class: "severity " + each.severity }, each.severity), go || null,
      el("span", {}, el("b", {}, visible(each.rule)), " ", visible(each.message), el("small", {}, [each.path, each.remedy].filter(Boolean).map(visible).join(" · ")))));
  }
  if (findings.length > 200) box.append(el("li", {}, `and ${plural(findings.length - 200, "more finding")}: deltalog check lists them.`));
}

// ------------------------------------------------------------------------------------------------ the table

const PAGE = 25;
let pageIndex = 0, rowsShown = [];
const COLUMNS = [["Version", "num"], ["Time that counts (UTC)", ""], ["Clock", ""], ["Drift", "num"], ["Operation", "long"], ["Rows", "num"], ["Files", "num"], ["Bytes", "num"], ["User metadata", "long"]];
function table() {
  const told = commits.some((c) => c.raw.user_metadata !== null);
  const columns = told ? COLUMNS : COLUMNS.slice(0, -1);
  const words = $("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const match = (c) => {
    c.text ??= [`v${c.version}`, c.raw.timestamp, c.operation, c.raw.user_metadata, c.raw.engine_info, c.raw.clock].join(" ").toLowerCase();
    return words.every((word) => c.text.includes(word));
  };
  rowsShown = commits.filter(match).reverse();
  const last = Math.max(0, Math.ceil(rowsShown.length / PAGE) - 1);
  pageIndex = Math.min(Math.max(pageIndex, 0), last);
  $("thead").replaceChildren(el("tr", {}, ...columns.map(([text, kind]) => el("th", { class: kind.replace("long", ""), scope: "col" }, text))));
  const change = (c, kind, bytes) => {
    const up = c.did[kind + "_added"], out = c.did[kind + "_removed"], show = (n) => bytes ? compact(n, true) : count(n);
    const gone = out ? "−" + show(out) : kind === "rows" && unknown.has(c.version) ? "−?" : "";
    return [up ? "+" + show(up) : "", gone].filter(Boolean).join(" ");
  };
  $("tbody").replaceChildren(...rowsShown.slice(pageIndex * PAGE, (pageIndex + 1) * PAGE).map((c) => {
    const go = el("button", { type: "button" }, "v" + c.version);
    go.addEventListener("click", () => select(c, true));
    const cells = [go, c.raw.timestamp_ms === null ? "missing" : iso(c.raw.timestamp_ms).replace("T", " "), badge(c), c.ict === null ? "" : drift(c.file - c.ict),
      el("span", {}, el("i", { class: opClass(c.effect) }), visible(c.operation)), change(c, "rows"), change(c, "files"), change(c, "bytes", true), visible(c.raw.user_metadata ?? "")];
    return el("tr", { "data-version": c.version }, ...columns.map(([, kind], k) => el("td", { class: kind, "data-column": columns[k][0] }, cells[k] || null)));
  }));
  const pages = $("pages");
  pages.replaceChildren();
  if (rowsShown.length > PAGE) {
    const button = (text, by, off) => {
      const node = el("button", { type: "button" }, text);
      node.disabled = off;
      node.addEventListener("click", () => { pageIndex += by; table(); });
      return node;
    };
    pages.append(button("Newer", -1, pageIndex === 0), button("Older", 1, pageIndex === last),
      `${count(pageIndex * PAGE + 1)} to ${count(Math.min((pageIndex + 1) * PAGE, rowsShown.length))} of ${count(rowsShown.length)}`);
  } else if (!rowsShown.length) pages.append("No commit matches.");
  markRow();
}
function markRow() {
  const wanted = String(shown().version);
  for (const row of $("tbody").rows) row.className = row.dataset.version === wanted ? "sel" : "";
}

// -------------------------------------------------------------------------------------------- the controls

function pressed(group, chosen) {
  for (const button of group.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button === chosen));
}
{
  for (const [effect, title] of EFFECTS) {
    const n = commits.filter((c) => c.effect === effect).length;
    if (!n) continue;
    const button = el("button", { type: "button", "aria-pressed": "false" }, el("i", { class: opClass(effect) }), title, el("b", {}, count(n)));
    button.addEventListener("click", () => {
      state.lit = state.lit === effect ? null : effect;
      pressed($("legend"), state.lit === null ? null : button);
      update();
    });
    $("legend").append(el("li", {}, button));
  }
  if (SAME) {
    const button = el("button", { type: "button", "aria-pressed": "false" }, "Clocks");
    button.addEventListener("click", () => { state.folded = !state.folded; button.setAttribute("aria-pressed", String(!state.folded)); update(); });
    $("lanes").append(button);
  }

  if (MEASURES.length > 1) for (const [kind, title] of MEASURES) {
    const button = el("button", { type: "button", "aria-pressed": String(kind === state.measure) }, title);
    button.addEventListener("click", () => { state.measure = kind; pressed($("measures"), button); update(); });
    $("measures").append(button);
  }
  const views = [["All", () => whole]];
  const fileEra = commits.filter((c) => !c.inCommit), ictEra = commits.filter((c) => c.inCommit);
  const fit = (list, edge) => () => { const times = list.map((c) => c.t).concat(edge ? [edge] : []); return around(times); };
  if (since && fileEra.length && ictEra.length) views.push([`Before v${since.version}`, fit(fileEra)], [`Since v${since.version}`, fit(ictEra)]);
  if (commits.length > 80) views.push(["Newest 50", fit(commits.slice(-50))]);
  if (views.length > 1) for (const [title, range] of views) {
    const button = el("button", { type: "button" }, title);
    button.addEventListener("click", () => setView(...range()));
    $("views").append(button);
  }
  for (const button of document.querySelectorAll("[data-move]")) button.addEventListener("click", () => {
    const what = button.dataset.move;
    if (what === "in") zoom(0.5); else if (what === "out") zoom(2); else move(what === "on" ? 0.5 : -0.5);
  });
  $("keys").append("Drag to zoom in, double-click for all. ", el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " go from commit to commit, ", el("kbd", {}, "+"), " ", el("kbd", {}, "−"), " zoom, ", el("kbd", {}, "0"), " shows all. Filled marks count for TIMESTAMP AS OF, pale ones do not.");
  $("filter").addEventListener("input", () => { pageIndex = 0; table(); });
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("instant").value.trim();
    const ms = instantOf(text);
    $("instant").setCustomValidity(Number.isFinite(ms) ? "" : INSTANT_HINT);
    if (!Number.isFinite(ms)) { $("instant").reportValidity(); return; }
    state.cursor = ms;
    state.pointer = null;
    const found = answer();
    if (found.version !== undefined && byVersion.has(found.version)) state.selected = byVersion.get(found.version);
    const [a, b] = state.view, at = axis(ms);
    if (at >= whole[0] && at <= whole[1] && (at < a || at > b)) setView(at - (b - a) / 2, at + (b - a) / 2);
    $("instant").blur();
    update();
  });
  $("instant").addEventListener("input", () => $("instant").setCustomValidity(""));
  $("foot").textContent = `${visible(data.generator)} · all times in UTC` + (data.left_off ? ` · ${plural(data.left_off, "older commit")} left off` : "");
  new ResizeObserver(() => update()).observe($("plot"));
}
window.deltalogTimeline = { resolveAt, data };
draw();
cards();
table();
