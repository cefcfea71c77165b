// Shared by the pages: text and numbers, elements, the rules of time travel, and the time axis.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const DAY = 86400000;

// ---------------------------------------------------------------------------------------- text and numbers

// What a log says is shown as text only, and what could hide or turn text round is spelled out.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const visible = (value) => String(value).replace(HIDDEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const iso = (ms) => Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString() : ms + " ms";
const count = (n) => Math.round(n).toLocaleString("en-US");
const plural = (n, one) => count(n) + " " + one + (n === 1 ? "" : "s");
function span(ms) {
  const size = Math.abs(ms);
  if (size < 1000) return Math.round(size) + " ms";
  for (const [unit, factor, until] of [["s", 1000, 120000], ["min", 60000, 7200000], ["h", 3600000, 2 * DAY]])
    if (size < until) return trim(size / factor) + " " + unit;
  return trim(size / DAY) + " d";
}
const trim = (n) => n >= 100 ? count(n) : n.toFixed(1).replace(/\.0$/, "");
const drift = (ms) => (ms < 0 ? "−" : ms > 0 ? "+" : "") + span(ms);
function compact(n, bytes) {
  const units = bytes ? [" B", " kB", " MB", " GB", " TB", " PB"] : ["", " k", " M", " bn"];
  let i = 0;
  while (Math.abs(n) >= 999.5 && i < units.length - 1) { n /= 1000; i++; }
  return (i && Math.abs(n) < 99.5 ? n.toFixed(1).replace(/\.0$/, "") : Math.round(n)) + units[i];
}
// Math.min(...list) has no room for a hundred thousand arguments.
const least = (list) => list.reduce((a, b) => a < b ? a : b, Infinity);
const most = (list) => list.reduce((a, b) => a > b ? a : b, -Infinity);
// The first place in an ascending list whose value is greater.
function firstAfter(list, value, of) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(list[middle]) <= value) low = middle + 1; else high = middle;
  }
  return low;
}
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) if (value !== null) node.setAttribute(key, value);
  for (const child of children) if (child !== null) node.append(child);
  return node;
}
function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
function day(ms) {
  return Math.abs(ms) <= 8.64e15 ? `${new Date(ms).getUTCDate()} ${month(ms)} ${iso(ms).slice(0, -20)}` : ms + " ms";
}
function month(ms) { return "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ")[new Date(ms).getUTCMonth()]; }

// The milliseconds of an instant that someone typed, or NaN.
const instantOf = (text) => /^-?\d{5,}$/.test(text) ? Number(text) : /(Z|[+-]\d\d:?\d\d)$/i.test(text) ? Date.parse(text.replace(" ", "T")) : NaN;
const INSTANT_HINT = "An instant with its zone, such as 2026-11-20T10:00:00Z, or milliseconds";

// Colours: one for each effect on the rows.
const EFFECTS = [["append", "append"], ["overwrite", "overwrite"], ["delete", "delete"], ["change", "update and merge"], ["rewrite", "same rows, other files"], ["none", "no rows"]];
const colour = new Map(EFFECTS.map(([effect], i) => [effect, [0, 2, 6, 4, 5, 7][i]]));
const opClass = (effect) => "op" + colour.get(effect);

// The rules of deltalog.protocol.timestamps, over the same numbers.
function resolver(ict, res, latestVersion) {
  return (ms) => {
    const inEra = ict.enabled && (res.from_ms === null || ms >= res.from_ms);
    const list = inEra && res.in_commit.length ? res.in_commit : res.file.length ? res.file : res.in_commit;
    const clock = list === res.file ? "file-modification" : "in-commit";
    let index = 0;
    if (list === res.file) { // These times never run back.
      index = Math.max(firstAfter(list, ms, ([, t]) => t) - 1, 0);
    } else {
      let low = 0, high = list.length - 1;
      if (list[high][1] === null) return { unknown: list[high][0], clock };
      if (list[high][1] <= ms) index = high;
      else {
        while (low < high) {
          const middle = (low + high) >> 1;
          if (list[middle][1] === null) return { unknown: list[middle][0], clock };
          if (list[middle][1] <= ms) low = middle + 1; else high = middle;
        }
        index = Math.max(high - 1, 0);
      }
    }
    const [version, t] = list[index];
    if (t === null) return { unknown: version, clock };
    let until = index + 1 < list.length ? list[index + 1][1] : null;
    if (list === res.file && ict.enabled && res.from_ms !== null) until = Math.min(until ?? Infinity, res.from_ms);
    const early = t > ms;
    return { version, t, until, clock, early, older: early && res.cut, late: version === latestVersion && t < ms,
      candidates: [list[0][0], list[list.length - 1][0]] };
  };
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, DAY, 2 * DAY, 7 * DAY];
const MONTHS = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000];
function ticksOf(from, to, apart) {
  const step = STEPS.find((s) => s >= apart);
  const found = [];
  if (step) {
    // Weeks begin on Mondays; the epoch was a Thursday.
    const offset = step === 7 * DAY ? 4 * DAY : 0;
    for (let t = Math.ceil((from - offset) / step) * step + offset; t <= to; t += step) found.push(t);
    const cut = step < 1000 ? 23 : step < 60000 ? 19 : 16;
    return found.map((t) => step < DAY
      ? { t, label: iso(t).slice(11, cut), under: day(t) }
      : { t, label: new Date(t).getUTCDate() + " " + month(t), under: iso(t).slice(0, 4) });
  }
  const months = MONTHS.find((m) => m * 30.4 * DAY >= apart) || 12000;
  const start = new Date(from);
  let index = Math.ceil((start.getUTCFullYear() * 12 + start.getUTCMonth()) / months) * months;
  for (;; index += months) {
    const at = new Date(0);
    at.setUTCFullYear(Math.floor(index / 12), index % 12, 1);
    if (at.getTime() > to || found.length > 50) break;
    if (at.getTime() >= from) found.push(at.getTime());
  }
  return found.map((t) => months < 12
    ? { t, label: month(t), under: iso(t).slice(0, 4) }
    : { t, label: iso(t).slice(0, 4), under: "" });
}

// About 6.6 px a character at 12 px.
const fitted = (room, texts) => texts.find((text) => text.length * 6.6 <= room) || null;

// -------------------------------------------------------------------------------------------- the time axis

// The axis is time with long empty stretches taken out: where one takes more than four fifths of the whole, it
// shrinks to a marked break. Positions on the axis are ms like time itself, with less of them in a break.
function timeAxis(allTimes) {
  const breaks = [];
  {
    const gaps = allTimes.slice(1).map((t, i) => [t - allTimes[i], allTimes[i], t]).sort((a, b) => b[0] - a[0]);
    let rest = gaps.reduce((sum, [size]) => sum + size, 0);
    for (const [size, from, to] of gaps) {
      if (rest - size <= 0 || size < 4 * (rest - size) || breaks.length === 4) break;
      rest -= size;
      breaks.push({ from, to, size });
    }
    const pad = rest * 0.04;
    for (const each of breaks) {
      each.from += Math.min(pad, each.size / 3);
      each.to -= Math.min(pad, each.size / 3);
      each.length = Math.min(rest * 0.07, each.to - each.from);
    }
    breaks.sort((a, b) => a.from - b.from);
  }
  function axis(t) {
    let taken = 0;
    for (const { from, to, length } of breaks) {
      if (t <= from) break;
      taken += (Math.min(t, to) - from) * (1 - length / (to - from));
    }
    return t - taken;
  }
  function timeAt(u) {
    let taken = 0;
    for (const { from, to, length } of breaks) {
      const start = from - taken;
      if (u <= start) break;
      if (u < start + length) return from + (u - start) * (to - from) / length;
      taken += to - from - length;
    }
    return u + taken;
  }
  // Ranges of time without a break in them.
  const stretches = [...breaks.map((b, i) => [i ? breaks[i - 1].to : -Infinity, b.from]), [breaks.length ? breaks[breaks.length - 1].to : -Infinity, Infinity]];
  function ticksByStretch([a, b], width) {
    const perPixel = (b - a) / width, start = timeAt(a), end = timeAt(b);
    return stretches.filter(([from, to]) => from <= end && to >= start).map(([from, to]) => {
      const part = { from: Math.max(from, start), to: Math.min(to, end) };
      return { ...part, ticks: ticksOf(part.from, part.to, perPixel * 104) };
    });
  }
  return { breaks, stretches, axis, timeAt, ticksByStretch };
}

// A range of positions on the axis with some room on both sides.
function padded(from, to) {
  const pad = Math.max((to - from) * 0.035, from === to ? 500 : 3);
  return [from - pad, to + pad];
}
// What changes the part of the axis that is shown, `state.view`; `redraw` follows each change.
function viewOf(state, whole, axis, redraw) {
  function setView(from, to) { // in positions on the axis
    const size = Math.min(Math.max(to - from, 4), (whole[1] - whole[0]) * 1.2);
    const middle = Math.min(Math.max((from + to) / 2, whole[0]), whole[1]);
    state.view = [middle - size / 2, middle + size / 2];
    redraw();
  }
  function zoom(factor, time) {
    const [a, b] = state.view, at = time === undefined ? (a + b) / 2 : axis(time);
    setView(at - (at - a) * factor, at + (b - at) * factor);
  }
  function move(part) {
    const [a, b] = state.view, by = (b - a) * part;
    setView(a + by, b + by);
  }
  return { setView, zoom, move };
}
