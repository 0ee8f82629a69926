// The map of modules: a treemap that keeps the order of the network, read like text; area is time or memory, colour the device.
function mapOf(data, state, redraw) {
  const DEEPEST = 24;  // names may be hostile: the rest of a longer path stays one name
  const canvas = $("map-view"), said = $("module"), crumbs = $("crumbs");
  const { operators } = data;
  const node = (name, parent, leaf) => ({ name, parent, leaf, kids: [], named: new Map(), sum: {}, on: {}, count: 0 });
  const build = () => {
    const top = node(data.network, null, -1);
    operators.n.forEach((name, v) => {
      const parts = name.split(" .. ")[0].split(/[./]+/).filter(Boolean);
      const path = parts.length > DEEPEST ? [...parts.slice(0, DEEPEST), parts.slice(DEEPEST).join(".")] : parts;
      let at = top;
      path.slice(0, -1).forEach((part) => {
        if (!at.named.has(part)) { const made = node(part, at, -1); at.named.set(part, made); at.kids.push(made); }
        at = at.named.get(part);
      });
      at.kids.push(node(name.includes(" .. ") ? tail(name) : path[path.length - 1] || name, at, v));
    });
    const whole = joined(top), [kid] = whole.kids;
    if (whole.kids.length === 1 && kid.leaf < 0) {  // a module that holds everything is not drawn
      whole.prefix = `${kid.name}.`;
      whole.kids = kid.kids;
      whole.kids.forEach((one) => { one.parent = whole; });
    }
    return whole;
  };
  // A module with one child only is drawn as one with it.
  const joined = (one) => {
    one.kids = one.kids.map(joined);
    if (one.parent && one.kids.length === 1 && one.leaf < 0) {
      const kid = one.kids[0];
      kid.name = `${one.name}.${kid.name}`;
      kid.parent = one.parent;
      return kid;
    }
    one.kids.forEach((kid) => { kid.parent = one; });
    return one;
  };
  const sizes = { time: operators.d, memory: operators.z };
  const measure = (one) => {
    if (one.leaf >= 0) {
      const i = operators.i[one.leaf];
      one.count = 1;
      for (const m of ["time", "memory"]) { one.sum[m] = sizes[m][one.leaf]; one.on[m] = new Map([[i, one.sum[m]]]); }
      return;
    }
    for (const m of ["time", "memory"]) { one.sum[m] = 0; one.on[m] = new Map(); }
    one.kids.forEach((kid) => {
      measure(kid);
      one.count += kid.count;
      for (const m of ["time", "memory"]) {
        one.sum[m] += kid.sum[m];
        kid.on[m].forEach((size, i) => one.on[m].set(i, (one.on[m].get(i) || 0) + size));
      }
    });
  };
  const top = build();
  measure(top);
  let root = top, chosen = null, metric = top.sum.time > 0 ? "time" : "memory", cells = [];
  const leafOf = new Map();
  const leaves = (one, visit) => (one.leaf >= 0 ? visit(one) : one.kids.forEach((kid) => leaves(kid, visit)));
  leaves(top, (leaf) => leafOf.set(leaf.leaf, leaf));
  const shares = (one) => [...one.on[metric]].filter(([, size]) => size > 0).sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const path = (one) => { const made = []; for (let at = one; at && at.parent; at = at.parent) made.unshift(at.name); return made.length ? (top.prefix || "") + made.join(".") : data.network; };

  // Rows from left to right, as many children in each as make its cells nearest to squares.
  const strips = (kids, x, y, w, h) => {
    const total = kids.reduce((sum, kid) => sum + kid.sum[metric], 0), scale = (w * h) / total, made = [];
    const worst = (strip, sum) => {
      const height = (sum * scale) / w;
      return strip.reduce((mean, kid) => { const width = (kid.sum[metric] * scale) / height; return mean + Math.max(width / height, height / width); }, 0) / strip.length;
    };
    let k = 0;
    while (k < kids.length) {
      const strip = [kids[k]];
      let sum = kids[k].sum[metric], now = worst(strip, sum);
      for (k += 1; k < kids.length && strip.length < 400; k += 1) {
        const next = worst([...strip, kids[k]], sum + kids[k].sum[metric]);
        if (next > now) break;
        strip.push(kids[k]);
        sum += kids[k].sum[metric];
        now = next;
      }
      const height = (sum * scale) / w;
      let at = x;
      strip.forEach((kid) => { const width = (kid.sum[metric] * scale) / height; made.push([kid, at, y, width, height]); at += width; });
      y += height;
    }
    return made;
  };
  const draw = () => {
    const width = wide(canvas), height = Math.round(Math.min((0.62 * window.innerHeight) / zoomed, Math.max(340, 0.44 * width)));
    const ctx = sized(canvas, width, height);
    ctx.font = `12px ${family}`;
    cells = [];
    paint(ctx, root, 0, 0, width, height, true);
    const outlined = chosen || (state.selected >= 0 ? leafOf.get(state.selected) : null);
    const cell = outlined && cells.find((c) => c[0] === outlined);
    if (cell) {
      ctx.lineWidth = 2.5;
      ctx.strokeStyle = colours["--ink"];
      ctx.strokeRect(cell[1] + 1, cell[2] + 1, Math.max(2, cell[3] - 2), Math.max(2, cell[4] - 2));
    }
    breadcrumbs();
  };
  const paint = (ctx, one, x, y, w, h, outer) => {
    cells.push([one, x, y, w, h]);
    const kids = one.kids.filter((kid) => kid.sum[metric] > 0);
    if (one.leaf >= 0 || !kids.length || w < 9 || h < 9 || w * h < 90) return fill(ctx, one, x, y, w, h);
    const head = outer ? 0 : w > 40 && h > 34 ? 17 : 0, pad = outer ? 0 : w > 24 && h > 24 ? 2 : 0.5;
    if (!outer) {
      ctx.fillStyle = colours["--track"];
      ctx.fillRect(x + 0.5, y + 0.5, w - 1, h - 1);
      if (head) {
        const many = shares(one);
        ctx.fillStyle = colours["--ink"];
        ctx.fillText(fitted(ctx, one.name, w - 12), x + 5, y + 13);
        let at = x + 1;  // a line in the colours of its devices
        many.forEach(([i, size]) => { ctx.fillStyle = palette[i % palette.length]; const part = ((w - 2) * size) / one.sum[metric]; ctx.fillRect(at, y + 0.5, part, 2); at += part; });
      }
    }
    strips(kids, x + pad, y + head + pad, Math.max(1, w - 2 * pad), Math.max(1, h - head - 2 * pad)).forEach((c) => paint(ctx, ...c, false));
    return undefined;
  };
  const fill = (ctx, one, x, y, w, h) => {
    const gap = w > 5 && h > 5 ? 1 : w > 2 && h > 2 ? 0.4 : 0;
    let at = x;
    shares(one).forEach(([i, size]) => {
      const part = (w * size) / one.sum[metric];
      ctx.fillStyle = palette[i % palette.length];
      ctx.globalAlpha = state.by === "device" && state.chosen >= 0 && state.chosen !== i ? 0.2 : 1;
      ctx.fillRect(at, y, Math.max(0.3, part - gap), Math.max(0.3, h - gap));
      at += part;
    });
    if (w > 34 && h > 15 && shares(one).length === 1) {
      ctx.fillStyle = inkOn(palette[shares(one)[0][0] % palette.length]);
      ctx.fillText(fitted(ctx, one.name, w - 9), x + 4, y + Math.min(14, h / 2 + 4));
    }
    ctx.globalAlpha = 1;
  };

  const tell = (one) => {
    const on = shares(one), whole = top.sum[metric];
    const count = one.leaf >= 0 ? kindOf(one.leaf) : `${one.count.toLocaleString("en")} operators`;
    return [
      path(one), `${count}, ${time(one.sum.time)}, ${bytes(one.sum.memory)} of weights and cache`,
      `${whole > 0 ? percent(one.sum[metric] / whole) : "0%"} of the network's ${metric}`,
      on.slice(0, 4).map(([i, size]) => (on.length > 1 ? `${data.devices[i]} ${percent(size / one.sum[metric])}` : `on ${data.devices[i]}`)).join(", "),
    ];
  };
  const choose = (one) => {
    chosen = one;
    said.textContent = one ? tell(one).join(" \u00b7 ") : "";
    state.selected = one && one.leaf >= 0 ? one.leaf : -1;
    redraw();
  };
  const zoom = (one, next) => {
    const to = one.leaf >= 0 ? one.parent || top : one;
    root = to;
    state.focus = null;
    if (root !== top) { state.focus = new Uint8Array(operators.n.length); leaves(root, (leaf) => { state.focus[leaf.leaf] = 1; }); }
    choose(next === undefined ? null : next);
    if (next === undefined) said.textContent = tell(root).join(" \u00b7 ");
  };
  const breadcrumbs = () => {
    const made = [];
    for (let at = root; at; at = at.parent) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = at.name;
      if (at === root) button.setAttribute("aria-current", "true");
      else button.addEventListener("click", () => { zoom(at); canvas.focus({ preventScroll: true }); });
      made.unshift(button);
    }
    crumbs.replaceChildren(...made);
  };
  const visible = (one) => one.kids.filter((kid) => kid.sum[metric] > 0);
  const step = (by) => {
    const among = visible(chosen && chosen !== root ? chosen.parent : root);
    const k = chosen ? among.indexOf(chosen) : -1;
    if (among.length) choose(among[k < 0 ? 0 : Math.min(Math.max(k + by, 0), among.length - 1)]);
  };
  const out = () => {
    if (chosen && chosen.parent && chosen.parent !== root && chosen !== root) choose(chosen.parent);
    else if (root.parent) { const from = root; zoom(root.parent, from); }
    else choose(null);
  };
  const keys = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => step(-Infinity), End: () => step(Infinity),
    ArrowDown: () => (chosen && visible(chosen).length ? choose(visible(chosen)[0]) : chosen || step(1)), ArrowUp: out, Escape: out, Backspace: out,
    Enter: () => { if (chosen && chosen.leaf < 0) zoom(chosen, visible(chosen)[0]); }, 0: () => zoom(top),
  };
  canvas.addEventListener("keydown", (event) => press(keys, event));
  const under = (event) => {
    const { x: left, y: down } = point(event);
    for (let k = cells.length - 1; k >= 0; k -= 1) {
      const [one, x, y, w, h] = cells[k];
      if (left >= x && left < x + w && down >= y && down < y + h) return one;
    }
    return null;
  };
  canvas.addEventListener("pointermove", (event) => { const one = under(event); tip(one && event, one && tell(one)); });
  canvas.addEventListener("pointerleave", () => tip(null));
  // A click goes one module deeper, towards what was clicked; on an operator of this module it chooses that.
  canvas.addEventListener("click", (event) => {
    let one = under(event);
    if (!one || one === root) return;
    const deepest = one;
    while (one.parent !== root) one = one.parent;
    tip(null);
    if (one.leaf >= 0) choose(one); else zoom(one, deepest.leaf >= 0 && deepest.parent === one ? deepest : undefined);
  });
  document.querySelectorAll("[name=metric]").forEach((input) => {
    if (!(top.sum[input.value] > 0)) input.parentElement.remove();
    input.checked = input.value === metric;
    input.addEventListener("change", () => { metric = input.value; key(); draw(); });
  });
  const key = () => {
    const whole = root.sum[metric];
    $("map-key").replaceChildren(...shares(root).slice(0, 24).map(([i, size]) => chip(`${data.devices[i]} ${percent(size / whole)}`, palette[i % palette.length])));
  };
  return { draw, key, root: () => path(root) };
}
