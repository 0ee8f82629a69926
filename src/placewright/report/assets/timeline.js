// The timeline: bars on a canvas, one row a device or link. Only what the view can show is drawn: bars below a pixel are
// gathered in columns of one pixel whose strength is the share of it that they fill.
function timelineOf(data, state, redraw) {
  const LANES_SHOWN = 4;     // a row grows with its lanes up to this many
  const MANY_ROWS = 150;     // more rows than this are low, and have a name only where there is room
  const MODULE_COLOURS = 7;  // modules take colours in turn, in the order of the network; the eighth stands for "other"
  const canvas = $("timeline-view"), said = $("picked");
  const { operators, transfers, measured } = data;
  const spans = measured ? measured.spans : null;
  const rows = [...data.rows, ...(measured ? measured.rows : [])];
  const end = Math.max(data.makespan, ...(spans ? [spans.s.reduce((most, s, k) => Math.max(most, s + spans.d[k]), 0)] : []), 1e-12);
  const whole = [-0.004 * end, 1.012 * end];
  let view = whole.slice(), box = null, cursor = null, drag = null;

  const about = (name, where, k, cells) => [name, where, `${time(cells.s[k])} to ${time(cells.s[k] + cells.d[k])} (${time(cells.d[k])})`];
  const sets = [
    {
      cells: operators, first: 0, plain: () => null, text: (k) => tail(operators.n[k]), operator: (k) => k,
      tell: (k) => [...about(operators.n[k], `${kindOf(k)} on ${data.devices[operators.i[k]]}`, k, operators), `weights and cache ${bytes(operators.z[k])}`],
    },
    {
      cells: transfers, first: 0, plain: () => "--transfer", text: (k) => (transfers.w ? transfers.w[k] : ""), operator: () => -1,
      tell: (k) => [...about(transfers.w ? transfers.n[k] : `transfer of ${transfers.n[k]}`, transfers.w ? data.devices[transfers.to[k]]
        : `${data.devices[data.rows[transfers.r[k]].device]} to ${data.devices[transfers.to[k]]}`, k, transfers), bytes(transfers.z[k])],
    },
  ];
  if (spans) {
    sets.push({
      cells: spans, first: data.rows.length, text: (k) => (spans.c[k] === 0 ? tail(spans.n[k]) : ""), operator: (k) => spans.v[k],
      plain: (k) => [null, "--transfer", "--wait"][spans.c[k]],
      tell: (k) => [...about(spans.n[k], `measured, ${["computes", "transfers", "waits"][spans.c[k]]}: ${measured.rows[spans.r[k]].label}`, k, spans),
        ...(spans.v[k] < 0 ? [] : [`predicted ${time(operators.d[spans.v[k]])}`])],
    });
  }
  // One list of bars, by start, for each row and lane.
  const lists = new Map();
  sets.forEach((set, at) => set.cells.s.forEach((_, k) => {
    const row = set.first + set.cells.r[k], lane = set.cells.l ? set.cells.l[k] : 0, id = `${row} ${lane}`;
    if (!lists.has(id)) lists.set(id, { row, lane, bars: [] });
    lists.get(id).bars.push([at, k]);
  }));
  const order = [...lists.values()].sort((a, b) => a.row - b.row || a.lane - b.lane);
  const startOf = ([at, k]) => sets[at].cells.s[k], lengthOf = ([at, k]) => sets[at].cells.d[k];
  order.forEach((list) => list.bars.sort((a, b) => startOf(a) - startOf(b)));
  const before = (list, t) => {  // index of the last bar that starts at or before t
    let low = 0, high = list.bars.length;
    while (low < high) { const mid = (low + high) >> 1; if (startOf(list.bars[mid]) <= t) low = mid + 1; else high = mid; }
    return low - 1;
  };
  const groupOf = (set) => ({ kind: set.cells.k, module: set.cells.m, device: set.cells.i })[state.by] || null;

  const layout = (width) => {
    const narrow = width < 620, caption = narrow && rows.length <= MANY_ROWS ? 15 : 0;
    const left = narrow ? 0 : Math.round(Math.min(210, Math.max(90, 0.16 * width)));
    const units = rows.reduce((sum, row) => sum + rowUnits(row), 0);
    const unit = Math.min(30, Math.max(rows.length > MANY_ROWS ? 5 : 15, 860 / units));
    let y = 24;
    const heads = [];
    const places = rows.map((row, k) => {
      if (measured && (k === 0 || k === data.rows.length)) {
        if (k) y += 14;
        heads.push([k ? `measured: the run nearest to the median of ${time(measured.median)}` : "predicted", y + 13]);
        y += 24;
      }
      const height = Math.round(rowUnits(row) * unit), place = { y: y + caption, height, label: y };
      y += caption + height + (rows.length > MANY_ROWS ? 1 : row.type === "compute" ? 3 : 2);
      return place;
    });
    return { width, height: y + 26, left, right: width - 8, bottom: y, places, heads, narrow, predicted: measured ? places[data.rows.length - 1].y + places[data.rows.length - 1].height : y };
  };
  const rowUnits = (row) => (row.type === "compute" ? Math.max(1, 0.5 * Math.min(row.lanes, LANES_SHOWN)) : 0.2 + 0.27 * Math.min(row.lanes, LANES_SHOWN));
  const toX = (t) => box.left + ((t - view[0]) / (view[1] - view[0])) * (box.right - box.left);
  const toT = (x) => view[0] + ((x - box.left) / (box.right - box.left)) * (view[1] - view[0]);
  const laneBox = (list) => {
    const { y, height } = box.places[list.row], lane = height / rows[list.row].lanes;
    return [y + lane * list.lane, Math.max(1, lane - (rows[list.row].lanes > 1 && lane > 3 ? 1 : 0))];
  };
  const colourOf = (set, k, groups) => {
    const plain = set.plain(k);
    if (plain) return colours[plain];
    const g = groups ? groups[k] : -1;
    return g === undefined || g < 0 ? colours["--unknown"] : palette[g % (state.by === "module" ? MODULE_COLOURS : palette.length)];
  };
  const dimmed = (set, k, groups) => {
    if (state.focus && !(set.operator(k) >= 0 && state.focus[set.operator(k)])) return true;
    return state.chosen >= 0 && (set.plain(k) !== null || !groups || groups[k] !== state.chosen);
  };

  const draw = () => {
    box = layout(wide(canvas));
    const ctx = sized(canvas, box.width, box.height);
    ctx.font = `12px ${family}`;
    grid(ctx);
    ctx.save();
    ctx.beginPath();
    ctx.rect(box.left, 0, box.right - box.left, box.height);
    ctx.clip();
    const groups = sets.map(groupOf);
    order.forEach((list) => drawList(ctx, list, groups));
    if (cursor) {
      const bar = order[cursor.list].bars[cursor.at], [y, h] = laneBox(order[cursor.list]);
      const x = toX(startOf(bar)), w = Math.max(3, toX(startOf(bar) + lengthOf(bar)) - x);
      ctx.lineWidth = 2;
      ctx.strokeStyle = colours["--ink"];
      ctx.strokeRect(x, y - 0.5, w, h + 1);
    }
    ctx.restore();
    marks(ctx);
    labels(ctx);
  };
  const drawList = (ctx, list, groups) => {
    const [y, h] = laneBox(list);
    let column = -1, sums = new Map();
    const flush = () => {
      if (!sums.size) return;
      let filled = 0, most = null;
      sums.forEach((share, colour) => { filled += share; if (!most || share > sums.get(most)) most = colour; });
      ctx.globalAlpha = Math.min(1, Math.max(0.3, filled));
      ctx.fillStyle = most;
      ctx.fillRect(column, y, 1, h);
      sums = new Map();
    };
    const perTime = (box.right - box.left) / (view[1] - view[0]);
    for (let at = Math.max(0, before(list, view[0])); at < list.bars.length; at += 1) {
      const bar = list.bars[at], set = sets[bar[0]], k = bar[1], s = startOf(bar), d = lengthOf(bar);
      if (s > view[1]) break;
      const dim = dimmed(set, k, groups[bar[0]]), colour = colourOf(set, k, groups[bar[0]]), w = d * perTime, x = toX(s);
      if (w < 1.5) {
        const at1 = Math.floor(x);
        if (at1 !== column) { flush(); column = at1; }
        sums.set(colour, (sums.get(colour) || 0) + w * (dim ? 0.2 : 1));
        continue;
      }
      ctx.globalAlpha = dim ? 0.18 : 1;
      ctx.fillStyle = colour;
      ctx.fillRect(x, y, w > 4 ? w - 1 : w, h);
      if (w > 30 && h > 11 && !dim) {
        const from = Math.max(x, box.left), room = Math.min(x + w, box.right) - from - 10;
        const text = fitted(ctx, set.text(k), room);
        if (text) { ctx.fillStyle = inkOn(colour); ctx.fillText(text, from + 5, y + h / 2 + 4); }
      }
    }
    flush();
    ctx.globalAlpha = 1;
  };
  const grid = (ctx) => {
    const step = niceStep((view[1] - view[0]) / Math.max(2, (box.right - box.left) / 95));
    ctx.textAlign = "center";
    for (let t = Math.ceil(Math.max(0, view[0]) / step) * step; t <= view[1]; t += step) {
      const x = Math.round(toX(t)) + 0.5;
      ctx.fillStyle = colours["--grid"];
      ctx.fillRect(x, 20, 1, box.bottom - 18);
      ctx.fillStyle = colours["--soft"];
      const text = `${Number(t.toPrecision(9))}`;
      if (x < box.right - 30 && x > box.left + 4) ctx.fillText(text, x, box.bottom + 16);
    }
    ctx.textAlign = "right";
    ctx.fillStyle = colours["--soft"];
    ctx.fillText(data.unit, box.right + 6, box.bottom + 16);
    ctx.textAlign = "left";
  };
  const marks = (ctx) => {
    const same = Math.abs(data.bound - data.makespan) <= 1e-6 * data.makespan;
    const said = [[data.makespan, same ? `${data.end} = lower bound ${time(data.bound)}` : `${data.end} ${time(data.makespan)}`, "--ink", box.predicted]];
    if (data.bound > 0 && !same) said.push([data.bound, `lower bound ${time(data.bound)}`, "--accent", box.bottom]);
    let taken = null;
    said.forEach(([t, text, colour, to]) => {
      if (t < view[0] || t > view[1]) return;
      const x = toX(t), width = ctx.measureText(text).width;
      ctx.fillStyle = colours[colour];
      ctx.fillRect(Math.round(x) - 0.5, 18, 1.5, to - 18);
      let from = Math.min(Math.max(box.left, x - width / 2), box.right - width);
      if (taken !== null && from + width > taken - 10) from = taken - 14 - width;
      if (from < box.left) return;
      taken = from;
      ctx.fillText(text, from, 12);
    });
  };
  const labels = (ctx) => {
    let last = -Infinity;
    rows.forEach((row, k) => {
      const place = box.places[k], deep = row.type === "compute";
      if (rows.length > MANY_ROWS && (!deep || box.narrow || place.y < last + 13)) return;
      last = place.y;
      ctx.font = `${deep ? 600 : 400} ${deep && rows.length <= MANY_ROWS ? 13 : 11}px ${family}`;
      ctx.fillStyle = colours[deep ? "--ink" : "--soft"];
      const text = fitted(ctx, row.label, box.narrow ? box.width - 10 : box.left - 14);
      if (box.narrow) ctx.fillText(text, 2, place.label + 11);
      else ctx.fillText(text, 0, place.y + place.height / 2 + 4);
    });
    ctx.font = `12px ${family}`;
    ctx.fillStyle = colours["--soft"];
    box.heads.forEach(([text, y]) => ctx.fillText(fitted(ctx, text, box.width), 0, y));
  };

  const at = (x, y) => {  // the bars under a point: [list, index, how many are too small to tell apart]
    const list = order.findIndex((l) => { const [top, h] = laneBox(l); return y >= top - 1 && y <= top + h + 1; });
    if (list < 0 || x < box.left) return null;
    const pixel = toT(1) - toT(0), t = toT(x), last = before(order[list], t + pixel);
    let found = null, count = 0;
    for (let k = last; k >= 0 && k > last - 400; k -= 1) {
      const bar = order[list].bars[k], s = startOf(bar), e = s + lengthOf(bar);
      if (e < t - 1.5 * pixel) break;
      if (found === null || (s <= t && e >= t)) found = k;
      count += lengthOf(bar) < 1.5 * pixel ? 1 : 0;
    }
    return found === null ? null : [list, found, count];
  };
  const tellOf = (list, k) => { const [set, cell] = order[list].bars[k]; return sets[set].tell(cell); };
  const pick = (list, k, follow) => {
    cursor = { list, at: k };
    const bar = order[list].bars[k], s = startOf(bar), d = lengthOf(bar), width = view[1] - view[0];
    if (follow && (s < view[0] || s + Math.min(d, width / 2) > view[1])) show(s + d / 2 - width / 2, s + d / 2 + width / 2);
    said.textContent = tellOf(list, k).join(" \u00b7 ");
    state.selected = sets[bar[0]].operator(bar[1]);
    redraw();
  };
  const show = (from, to) => {
    const span = Math.min(Math.max(to - from, 1e-7 * end), whole[1] - whole[0]);
    const a = Math.min(Math.max(from, whole[0]), whole[1] - span);
    view = [a, a + span];
    soon(draw);
  };
  const zoom = (factor, x) => {
    const t = x === undefined ? (cursor ? startOf(order[cursor.list].bars[cursor.at]) : (view[0] + view[1]) / 2) : toT(x);
    show(t - (t - view[0]) * factor, t + (view[1] - t) * factor);
  };
  const pan = (share) => show(view[0] + share * (view[1] - view[0]), view[1] + share * (view[1] - view[0]));
  const moves = { in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.33), right: () => pan(0.33), all: () => show(...whole) };
  document.querySelectorAll("[data-move]").forEach((b) => b.addEventListener("click", () => moves[b.dataset.move]()));
  const step = (by) => {
    if (!cursor) return pick(0, Math.max(0, before(order[0], view[0])), true);
    return pick(cursor.list, Math.min(Math.max(cursor.at + by, 0), order[cursor.list].bars.length - 1), true);
  };
  const hop = (by) => {
    if (!cursor) return step(0);
    const to = Math.min(Math.max(cursor.list + by, 0), order.length - 1);
    return pick(to, Math.max(0, before(order[to], startOf(order[cursor.list].bars[cursor.at]))), true);
  };
  const keys = {
    "+": moves.in, "=": moves.in, "-": moves.out, 0: moves.all, PageUp: moves.left, PageDown: moves.right,
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => hop(-1), ArrowDown: () => hop(1),
    Home: () => step(-Infinity), End: () => step(Infinity), Escape: () => { cursor = null; state.selected = -1; said.textContent = ""; redraw(); },
  };
  canvas.addEventListener("keydown", (event) => press(keys, event));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoom(1.0015 ** Math.max(-400, Math.min(400, event.deltaY * 2)), point(event).x);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / (box.right - box.left));
    else return;
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { ...point(event), view: view.slice(), moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const { x, y } = point(event);
    if (drag) {
      const shift = ((drag.x - x) / (box.right - box.left)) * (drag.view[1] - drag.view[0]);
      drag.moved = drag.moved || Math.abs(drag.x - x) > 4;
      if (drag.moved) { tip(null); show(drag.view[0] + shift, drag.view[1] + shift); }
      return;
    }
    const found = at(x, y);
    tip(found && event, found && [...tellOf(found[0], found[1]), ...(found[2] > 1 ? [`and ${found[2] - 1} more here, shorter than a pixel: zoom in`] : [])]);
  });
  canvas.addEventListener("pointerup", (event) => {
    const found = drag && !drag.moved ? at(drag.x, drag.y) : null;
    drag = null;
    if (found) pick(found[0], found[1], false);
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => tip(null));
  canvas.addEventListener("dblclick", moves.all);

  const key = () => {
    const groups = groupOf(sets[0]), present = new Set(groups);
    const names = state.by === "device" ? data.used.map((i) => [data.devices[i], i]) : (state.by === "kind" ? data.kinds : data.modules).map((name, k) => [name, k]);
    const colour = (g) => palette[g % (state.by === "module" ? MODULE_COLOURS : palette.length)];
    const chips = names.filter(([, g]) => present.has(g)).map(([name, g]) => chip(name, colour(g), state.chosen === g, () => {
      state.chosen = state.chosen === g ? -1 : g;
      redraw();
    }));
    const has = (c) => spans && spans.c.includes(c);
    if (transfers.n.length || has(1)) chips.push(chip("transfer", colours["--transfer"]));
    if (has(2)) chips.push(chip("wait", colours["--wait"]));
    const mixed = spans && groupOf(sets[2]);
    if (mixed && mixed.some((g, k) => g < 0 && spans.c[k] === 0)) chips.push(chip("several operators", colours["--unknown"]));
    const focused = [...$("key").children].indexOf(document.activeElement);
    $("key").replaceChildren(...chips);
    if (focused >= 0 && chips[focused]) chips[focused].focus();
  };
  document.querySelectorAll("[name=colour]").forEach((input) => {
    if (input.value === "module" && data.modules.length < 2) input.parentElement.remove();
    input.checked = input.value === state.by;
    input.addEventListener("change", () => { state.by = input.value; state.chosen = -1; redraw(); });
  });
  return { draw, key, view: () => view };
}

// 1, 2 or 5 times a power of ten, not below the least.
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= least * 0.999999);
}
