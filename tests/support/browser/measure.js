(() => {
  // Colours as [red, green, blue, alpha], of which alpha is 0 to 1.
  const parsed = (text) => {
    const numbers = (text.match(/-?[\d.]+(?:e-?\d+)?%?/g) || []).map((n) => n.endsWith("%") ? parseFloat(n) / 100 : parseFloat(n));
    if (text.startsWith("color(")) return [...numbers.slice(0, 3).map((n) => n * 255), numbers[3] ?? 1];
    return text.startsWith("rgb") ? [...numbers.slice(0, 3), numbers[3] ?? 1] : [0, 0, 0, 0];
  };
  const over = (top, below) => {
    const alpha = top[3] + below[3] * (1 - top[3]);
    return alpha === 0 ? [0, 0, 0, 0] : [0, 1, 2].map((i) => (top[i] * top[3] + below[i] * below[3] * (1 - top[3])) / alpha).concat(alpha);
  };
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  };
  const opacity = (node) => {
    let product = 1;
    for (let each = node; each instanceof Element; each = each.parentElement) product *= parseFloat(getComputedStyle(each).opacity);
    return product;
  };
  const ground = (node) => {
    const style = getComputedStyle(node);
    if (!(node instanceof SVGElement) || node instanceof SVGSVGElement) return parsed(style.backgroundColor);
    if (node instanceof SVGTextContentElement || node instanceof SVGLineElement || style.fill === "none") return [0, 0, 0, 0];
    const colour = parsed(style.fill);
    return [...colour.slice(0, 3), colour[3] * parseFloat(style.fillOpacity) * opacity(node)];
  };
  // What is below a text at a point: the layers under its element, down to the first that is opaque.
  const behind = (owner, px, py) => {
    const stack = document.elementsFromPoint(px, py);
    const first = stack.findIndex((each) => each === owner || each.contains(owner) || owner.contains(each));
    let colour = [0, 0, 0, 0];
    const style = getComputedStyle(owner);
    if (owner instanceof SVGElement && style.paintOrder.startsWith("stroke") && style.stroke !== "none") colour = parsed(style.stroke);
    for (const each of stack.slice(Math.max(first, 0))) {
      if (colour[3] >= 0.999) break;
      colour = over(colour, ground(each));
    }
    return over(colour, parsed(getComputedStyle(document.documentElement).backgroundColor).map((v, i, all) => all[3] === 0 ? 255 : v));
  };
  const shown = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getClientRects().length > 0;
  const cut = [], contrasts = [], plain = [], boxes = new Map();
  const scrolls = (style) => /auto|scroll/.test(style.overflowX + style.overflowY);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const owner = text.parentElement, words = text.data.trim();
    if (!words || !shown(owner) || /^(SCRIPT|STYLE|NOSCRIPT|OPTION)$/.test(owner.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const rects = [...range.getClientRects()].filter((r) => r.width > 0.5 && r.height > 0.5);
    if (!rects.length) continue;
    const svg = owner.ownerSVGElement;
    // What may be scrolled downwards is not cut, but no text may be cut at its sides.
    let inScroller = false;
    const room = getComputedStyle(owner).whiteSpaceCollapse === "preserve" ? 6 : 0.5; // spaces at the end of a line hang
    const away = new Set(); // scrolled out of sight
    for (const rect of rects) {
      if (rect.left < -0.5 || rect.right > innerWidth + 0.5) cut.push([words, "by the window", Math.round(rect.left), Math.round(rect.right)]);
      for (let each = svg ? svg : owner; each instanceof Element && each !== document.body; each = each.parentElement) {
        const style = getComputedStyle(each);
        if (style.overflowX === "visible") continue;
        const box = each.getBoundingClientRect();
        if (scrolls(style)) inScroller = true;
        if (scrolls(style) && (rect.top < box.top || rect.bottom > box.bottom)) away.add(rect);
        if (rect.left < box.left - 0.5 || rect.right > box.right + room) cut.push([words, "by " + (each.id || each.className.baseVal || each.className || each.tagName), Math.round(rect.left - box.left), Math.round(rect.right - box.right)]);
        if (!scrolls(style) && (rect.top < box.top - 1.5 || rect.bottom > box.bottom + 1.5)) cut.push([words, "above or below", Math.round(rect.top - box.top), Math.round(rect.bottom - box.bottom)]);
      }
    }
    if (!svg) for (const r of rects) if (!away.has(r)) plain.push({ r, words, owner });
    if (svg) boxes.set(svg, (boxes.get(svg) || []).concat(rects.map((r) => ({ r, words, owner: owner.closest("text") }))));
    const rect = rects[0], px = (rect.left + rect.right) / 2, py = (rect.top + rect.bottom) / 2;
    const top = document.elementFromPoint(px, py);
    if (!top || (inScroller && !(top.contains(owner) || owner.contains(top)))) continue; // scrolled out of sight
    const below = behind(owner, px, py), style = getComputedStyle(owner);
    const colour = parsed(owner instanceof SVGElement ? style.fill : style.color);
    colour[3] *= opacity(owner);
    contrasts.push({ text: words.slice(0, 60), ratio: Math.round(contrast(over(colour, below), below) * 100) / 100, colour: style.color, below: below.map(Math.round).join(" ") });
  }
  for (const input of document.querySelectorAll("input")) {
    if (!shown(input)) continue;
    const below = over(parsed(getComputedStyle(input).backgroundColor), behind(input, 0, 0));
    for (const part of input.value ? [null] : ["::placeholder"]) {
      const style = getComputedStyle(input, part);
      const colour = parsed(style.color);
      colour[3] *= part ? parseFloat(style.opacity) : 1;
      contrasts.push({ text: input.value || input.placeholder, ratio: Math.round(contrast(over(colour, below), below) * 100) / 100 });
    }
    if (input.scrollWidth > input.clientWidth + 1) cut.push([input.value, "in its field", input.clientWidth, input.scrollWidth]);
  }
  const overlapping = [];
  for (const list of boxes.values()) for (let i = 0; i < list.length; i++) for (let k = i + 1; k < list.length; k++) {
    const a = list[i].r, b = list[k].r;
    if (list[i].owner === list[k].owner || list[i].owner.classList.contains("flag-text") || list[k].owner.classList.contains("flag-text")) continue;
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 4) overlapping.push([list[i].words, list[k].words, Math.round(wide), Math.round(high)]);
  }
  plain.sort((a, b) => a.r.top - b.r.top);
  for (let i = 0; i < plain.length; i++) for (let k = i + 1; k < plain.length && plain[k].r.top < plain[i].r.bottom; k++) {
    const a = plain[i], b = plain[k];
    if (a.owner === b.owner || a.owner.contains(b.owner) || b.owner.contains(a.owner)) continue;
    const wide = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left), high = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
    if (wide > 1 && high > 6) overlapping.push([a.words, b.words, Math.round(wide), Math.round(high)]);
  }
  const root = document.documentElement;
  return { overflow: Math.max(0, root.scrollWidth - root.clientWidth), cut, overlapping, contrasts };
})()
