// ------------------------------------------------------------------------------------------------ the model

const tables = data.tables.map((raw) => {
  const commits = raw.commits.map(([version, t, effect, operation, inCommit, added, removed]) =>
    ({ version, t, effect, operation: operation ?? "unknown", inCommit, added, removed, transaction: null })).reverse();
  const byVersion = new Map(commits.map((c) => [c.version, c]));
  const parts = new Map();
  for (const [version, id, part, count] of raw.transactions) {
    parts.set(version, { id, part, count });
    if (byVersion.has(version)) byVersion.get(version).transaction = id;
  }
  return { ...raw, commits, byVersion, parts, resolve: resolver(raw.in_commit_timestamps, raw.resolution, raw.latest) };
});
tables.forEach((table) => { for (const c of table.commits) c.table = table; });
const everyCommit = tables.flatMap((table) => table.commits).sort((a, b) => a.t - b.t);

// The rule of TransactionManager.consistent_cut: of a transaction that is incomplete at the instant, no commit counts.
function versionAt(table, ms) {
  const found = table.resolve(ms);
  if (found.unknown !== undefined) return { refused: "the log cannot tell" };
  if (found.older) return { refused: "older than this page" };
  if (found.early) return { refused: "did not exist yet" };
  const place = table.parts.get(found.version);
  const version = place && place.part < place.count ? found.version - place.part : found.version;
  return version < 0 ? { refused: "did not exist yet" } : { version, until: found.until };
}
const cutAt = (ms) => tables.map((table) => versionAt(table, ms));

// The transactions that committed to more than one table of the page, by the time of their last commits.
const transactions = new Map();
for (const c of everyCommit) if (c.transaction !== null) {
  const found = transactions.get(c.transaction) || { t: c.t, tables: new Set() };
  found.t = Math.max(found.t, c.t);
  found.tables.add(tables.indexOf(c.table));
  transactions.set(c.transaction, found);
}
for (const [id, { tables: set }] of transactions) if (set.size < 2) transactions.delete(id);
const joins = [...transactions.values()];

// ------------------------------------------------------------------------------------------------- the head

const catalogs = [...new Set(tables.map((table) => table.catalog))];
const ofCatalog = catalogs.length === 1 && catalogs[0] !== null;
$("name").textContent = visible(data.title);
$("where").textContent = catalogs.filter((each) => each !== null).map(visible).join(", ");
$("lede").textContent = ofCatalog
  ? "For each instant, the versions of all tables that TransactionManager.consistent_cut returns: of every transaction, either all commits or none."
  : "For each instant, the version of each table that TIMESTAMP AS OF returns. Only tables of one catalog have transactions; between other tables, nothing holds the commits together.";
{
  const tile = (term, value, note) => $("tiles").append(el("div", {}, el("dt", {}, term), el("dd", {}, value, el("small", {}, note))));
  const lo = least(everyCommit.map((c) => c.t)), hi = most(everyCommit.map((c) => c.t));
  tile("Tables", count(tables.length), "");
  tile("Commits", count(everyCommit.length), "");
  tile("Over", span(hi - lo), day(lo) === day(hi) ? day(lo) : `${day(lo)} – ${day(hi)}`);
  if (ofCatalog) tile("Transactions", count(transactions.size), "over several tables");
}

// ------------------------------------------------------------------------------------------------ the state

const { breaks, axis, timeAt, ticksByStretch } = timeAxis([...new Set(everyCommit.map((c) => c.t))]);
const whole = padded(axis(everyCommit[0].t), axis(everyCommit[everyCommit.length - 1].t));
const state = { view: whole, cursor: everyCommit[everyCommit.length - 1].t, pointer: null, brush: null, lit: null };
for (const table of tables) table.lane = table.commits.map((c) => [axis(c.t), c]).sort((a, b) => a[0] - b[0]);

const { setView, zoom, move } = viewOf(state, whole, axis, update);

// ------------------------------------------------------------------------------------------------- the plot

const TOP = 30, LANE = 58, SIDE = 10;
let frame = null;

function draw() {
  const plot = $("plot"), W = Math.max(plot.clientWidth, 280), right = W - SIDE;
  const bottom = TOP + tables.length * LANE, H = bottom + 44, [from, to] = state.view;
  // While only the pointer moves, what is under it is drawn again and nothing else.
  const key = [W, from, to, state.lit, state.brush].join();
  if (frame !== null && frame.key === key) { drawPointed(frame); return; }
  const x = (t) => SIDE + (axis(t) - from) / (to - from) * (right - SIDE);
  const at = (px) => timeAt(from + (px - SIDE) / (right - SIDE) * (to - from));
  const root = svg("svg", { viewBox: `0 0 ${W} ${H}`, height: H, "aria-hidden": "true" });
  const inside = (t) => { const px = x(t); return px >= SIDE - 1 && px <= right + 1; };
  for (const { ticks } of ticksByStretch(state.view, right - SIDE)) for (const tick of ticks)
    root.append(svg("line", { class: "grid", x1: x(tick.t), x2: x(tick.t), y1: TOP, y2: bottom }));
  for (const each of breaks) {
    const a = Math.max(x(each.from), SIDE), b = Math.min(x(each.to), right);
    if (b - a > 3) root.append(svg("rect", { class: "pause", x: a, y: TOP, width: b - a, height: bottom - TOP }));
  }
  const laneY = (i) => TOP + i * LANE + 40;
  // A line for each place at which transactions joined tables, from the first of their tables to the last.
  const joined = new Map();
  for (const { t, tables: set } of joins) {
    if (!inside(t)) continue;
    const key = Math.round(x(t) / 2) * 2, found = joined.get(key) || [Infinity, -Infinity];
    joined.set(key, [Math.min(found[0], ...set), Math.max(found[1], ...set)]);
  }
  for (const [px, [first, last]] of joined) root.append(svg("line", { class: "join", x1: px, x2: px, y1: laneY(first), y2: laneY(last) }));
  tables.forEach((table, i) => {
    const y = laneY(i), room = Math.floor((right - SIDE) / 7.2);
    const name = visible(table.name), shown = name.length > room ? "…" + name.slice(1 - room) : name;
    root.append(svg("text", { class: "lane", x: SIDE, y: y - 22 }, shown));
    root.append(svg("line", { class: "base", x1: SIDE, x2: right, y1: y, y2: y }));
    const scale = (right - SIDE) / (to - from), place = ([u]) => u, marks = new Map();
    const end = firstAfter(table.lane, to + 9 / scale, place);
    for (let k = firstAfter(table.lane, from - 9 / scale, place); k < end; k++) {
      const [u, c] = table.lane[k], key = Math.round((SIDE + (u - from) * scale) / 6) * 6;
      const found = marks.get(key) || [];
      found.push(c);
      marks.set(key, found);
    }
    for (const [key, list] of marks) {
      const [c] = list, effect = modalOf(list), quiet = state.lit === null || list.some((each) => each.effect === state.lit) ? "" : " quiet";
      if (list.length === 1) root.append(svg("circle", { class: opClass(c.effect) + (c.inCommit ? " solid" : " ghost") + quiet, cx: x(c.t), cy: y, r: 5 }));
      else {
        const height = Math.min(LANE - 34, 9 + 4 * Math.log2(list.length));
        const middle = list.reduce((sum, each) => sum + x(each.t), 0) / list.length;
        root.append(svg("rect", { class: opClass(effect) + quiet, x: middle - 3, y: y - height / 2, width: 6, height }));
      }
    }
  });
  let free = -Infinity, freeUnder = -Infinity, last = null;
  for (const { ticks } of ticksByStretch(state.view, right - SIDE)) for (const tick of ticks) {
    const px = x(tick.t), half = tick.label.length * 3.1, wide = tick.under.length * 3.4;
    if (px - half < Math.max(0, free) || px + half > W) continue;
    free = px + half + 10;
    root.append(svg("text", { class: "tick", x: px, y: bottom + 16, "text-anchor": "middle" }, tick.label));
    if (tick.under === last || px - wide < Math.max(0, freeUnder) || px + wide > W) continue;
    last = tick.under;
    freeUnder = px + wide + 10;
    root.append(svg("text", { class: "day", x: px, y: bottom + 32, "text-anchor": "middle" }, tick.under));
  }
  if (state.brush) root.append(svg("rect", { class: "brush", x: Math.min(...state.brush), y: TOP, width: Math.abs(state.brush[1] - state.brush[0]), height: bottom - TOP }));
  const pointed = svg("g");
  root.append(pointed);
  plot.replaceChildren(root);
  frame = { key, W, x, at, inside, laneY, bottom, pointed };
  drawPointed(frame);
}
function drawPointed({ W, x, inside, laneY, bottom, pointed }) {
  pointed.replaceChildren();
  const ms = now();
  if (!inside(ms)) return;
  const px = x(ms);
  tables.forEach((table, i) => {
    const c = table.byVersion.get(versionAt(table, ms).version);
    if (c && inside(c.t)) pointed.append(svg("circle", { class: "ring", cx: x(c.t), cy: laneY(i), r: 8.5 }));
  });
  const flag = { px, box: svg("rect", { class: "flag", y: 1, height: 21, rx: 6 }), text: svg("text", { class: "flag-text", y: 15.5, "text-anchor": "middle" }) };
  pointed.append(svg("line", { class: "cursor", x1: px, x2: px, y1: 22, y2: bottom }), flag.box, flag.text);
  placeFlag(flag, W, ms);
}
function placeFlag({ px, box, text }, W, ms) {
  const full = iso(ms).replace("T", " ");
  let width = 0;
  for (const each of [full, full.slice(full.indexOf(" ") + 1)]) {
    text.textContent = each;
    width = Math.ceil(text.getComputedTextLength()) + 18;
    if (width <= W) break;
  }
  const left = Math.max(Math.min(px - width / 2, W - width), 0);
  box.setAttribute("x", left);
  box.setAttribute("width", width);
  text.setAttribute("x", left + width / 2);
}
function modalOf(list) {
  const tally = new Map();
  for (const c of list) tally.set(c.effect, (tally.get(c.effect) || 0) + 1);
  return [...tally].reduce((a, b) => b[1] > a[1] ? b : a)[0];
}
const now = () => Math.floor(state.pointer ?? state.cursor);

// -------------------------------------------------------------------------------------------- the consistent cut

const COLUMNS = [["Table", "long"], ["Version", "num"], ["Committed (UTC)", ""], ["Operation", ""], ["Commits", "num"]].concat(tables.some((table) => table.check !== null) ? [["Check", ""]] : []);
$("thead").append(el("tr", {}, ...COLUMNS.map(([text, kind]) => el("th", { class: kind.replace("long", ""), scope: "col" }, text))));
for (const table of tables) {
  table.cells = Object.fromEntries(COLUMNS.map(([name, kind]) => [name, el("td", { class: kind, "data-column": name })]));
  table.cells.Table.textContent = visible(table.name);
  table.cells.Commits.textContent = count(table.commits.length + table.left_off);
  if (table.check !== null) {
    const found = ["error", "warning", "info"].filter((severity) => table.check[severity]);
    table.cells.Check.append(...(found.length ? found.flatMap((severity) => [el("span", { class: "severity " + severity }, `${count(table.check[severity])} ${severity}`), " "]) : ["nothing found"]));
  }
  $("tbody").append(el("tr", {}, ...COLUMNS.map(([name]) => table.cells[name])));
}
function cut() {
  const ms = now(), found = cutAt(ms), input = $("instant");
  if (document.activeElement !== input) input.value = iso(ms);
  tables.forEach((table, i) => {
    const { version, refused } = found[i], c = table.byVersion.get(version);
    const set = (name, ...nodes) => table.cells[name].replaceChildren(...nodes);
    set("Version", version === undefined ? "–" : "v" + version);
    set("Committed (UTC)", c ? iso(c.t).replace("T", " ") : refused ?? "older than this page");
    if (c) set("Operation", el("span", {}, el("i", { class: opClass(c.effect) }), visible(c.operation)));
    else set("Operation");
  });
  const missing = found.filter((each) => each.version === undefined).length;
  $("why").textContent = missing ? `At ${iso(ms)}, ${plural(missing, "table")} of ${tables.length} ${missing === 1 ? "has" : "have"} no version.` : `At ${iso(ms)}, these versions were current.`;
}

let waiting = false;
function update() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); cut(); });
}

// ------------------------------------------------------------------------------------------------ the controls

{
  const plot = $("plot");
  const px = (event) => event.clientX - plot.getBoundingClientRect().left;
  plot.addEventListener("pointermove", (event) => {
    if (state.brush) state.brush[1] = px(event);
    else state.pointer = frame.at(px(event));
    update();
  });
  plot.addEventListener("pointerleave", () => { state.pointer = null; update(); });
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    state.brush = [px(event), px(event)];
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointerup", () => {
    const brush = state.brush;
    state.brush = null;
    if (brush && Math.abs(brush[1] - brush[0]) > 6) setView(axis(frame.at(Math.min(...brush))), axis(frame.at(Math.max(...brush))));
    else update();
  });
  plot.addEventListener("pointercancel", () => { state.brush = null; update(); });
  plot.addEventListener("click", (event) => { state.cursor = frame.at(px(event)); update(); });
  plot.addEventListener("dblclick", () => setView(...whole));
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, frame.at(px(event)));
  }, { passive: false });
  const step = (forward) => {
    const time = (c) => c.t, ms = now();
    const i = forward ? firstAfter(everyCommit, ms, time) : firstAfter(everyCommit, ms - 1, time) - 1;
    if (i >= 0 && i < everyCommit.length) go(everyCommit[i].t);
  };
  const go = (t) => {
    state.cursor = t;
    state.pointer = null;
    const [a, b] = state.view, u = axis(t);
    if (u < a || u > b) setView(u - (b - a) / 2, u + (b - a) / 2);
    update();
  };
  plot.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowRight") step(true);
    else if (event.key === "ArrowLeft") step(false);
    else if (event.key === "Home") go(everyCommit[0].t);
    else if (event.key === "End") go(everyCommit[everyCommit.length - 1].t);
    else if (event.key === "+" || event.key === "=") zoom(0.5, state.cursor);
    else if (event.key === "-") zoom(2, state.cursor);
    else if (event.key === "0" || event.key === "Escape") setView(...whole);
    else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-move]")) button.addEventListener("click", () => {
    const what = button.dataset.move;
    if (what === "in") zoom(0.5); else if (what === "out") zoom(2); else if (what === "all") setView(...whole); else move(what === "on" ? 0.5 : -0.5);
  });
  for (const [effect, title] of EFFECTS) {
    const n = everyCommit.filter((c) => c.effect === effect).length;
    if (!n) continue;
    const button = el("button", { type: "button", "aria-pressed": "false" }, el("i", { class: opClass(effect) }), title, el("b", {}, count(n)));
    button.addEventListener("click", () => {
      state.lit = state.lit === effect ? null : effect;
      for (const each of $("legend").querySelectorAll("button")) each.setAttribute("aria-pressed", String(each === button && state.lit !== null));
      update();
    });
    $("legend").append(el("li", {}, button));
  }
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const ms = instantOf($("instant").value.trim());
    $("instant").setCustomValidity(Number.isFinite(ms) ? "" : INSTANT_HINT);
    if (!Number.isFinite(ms)) { $("instant").reportValidity(); return; }
    $("instant").blur();
    go(ms);
  });
  $("instant").addEventListener("input", () => $("instant").setCustomValidity(""));
  const leftOff = tables.reduce((n, table) => n + table.left_off, 0);
  $("foot").textContent = `${visible(data.generator)} · all times in UTC` + (leftOff ? ` · ${plural(leftOff, "older commit")} left off` : "");
  new ResizeObserver(() => update()).observe(plot);
}
window.deltalogTables = { cutAt, data };
draw();
cut();
