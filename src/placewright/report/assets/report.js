"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data) return;
  const $ = (id) => document.getElementById(id);
  const gantt = $("gantt");
  const LABELLED = 600;      // more bars than this get no text on them: measuring text is slow
  const DETAILED = 2500;     // more bars than this are drawn only as far as the view can show them
  const BIN = 3;
  const MODULE_COLOURS = 7;  // modules take colours in turn, in the order of the network; the eighth stands for "other"
  const LANES_SHOWN = 4;     // a row grows with its lanes up to this many
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const narrow = () => window.innerWidth < 640;
  const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "\u2026" : text);
  // Plotly reads a little HTML in texts: names must reach it escaped.
  const safe = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const bytes = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let k = 0;
    while (n >= 999.5 && k < 4) { n /= 1024; k += 1; }
    return (k ? Number(n.toPrecision(3)) : n) + " " + units[k];
  };
  const time = (t) => {
    const seconds = t * data.unit_s;
    const [unit, factor] = [["s", 1], ["ms", 1e-3], ["us", 1e-6]].find(([, f]) => seconds >= 0.9995 * f) || ["ns", 1e-9];
    return t ? `${Number((seconds / factor).toPrecision(4))} ${unit}` : "0 s";
  };
  const times = (s, d) => `${time(s)} to ${time(s + d)} (${time(d)})`;
  const measured = data.measured;
  const { operators, transfers } = data;
  const spans = measured ? measured.spans : null;
  // Names are front-coded: p characters of the one before, then n.
  const decode = (cells) => {
    let before = "";
    cells.n = cells.n.map((rest, k) => (before = before.slice(0, cells.p[k]) + rest));
  };
  [operators, transfers, ...(spans ? [spans] : [])].forEach(decode);
  const computeRow = new Map(data.rows.flatMap((row, k) => (row.type === "compute" ? [[row.device, k]] : [])));
  operators.r = operators.i.map((i) => computeRow.get(i));
  if (spans) {
    spans.c = spans.c.map((c) => ["compute", "transfer", "wait"][c]);
    const others = spans.n.values();
    spans.n = spans.v.map((v) => (v < 0 ? others.next().value : operators.n[v]));
    spans.k = spans.v.map((v) => (v < 0 ? -1 : operators.k[v]));
    spans.m = spans.v.map((v) => (v < 0 ? -1 : operators.m[v]));
    spans.i = spans.r.map((r) => measured.rows[r].device);
  }
  const rows = [...data.rows, ...(measured ? measured.rows : [])];

  // Heights of rows in units of one compute row; the axis runs downwards.
  let y = measured ? 0.9 : 0.15;
  const headings = [{ text: "predicted", y: 0.4 }];
  rows.forEach((row, k) => {
    if (measured && k === data.rows.length) {
      headings.push({ text: `measured (run nearest to the median of ${time(measured.median)})`, y: y + 0.75 });
      y += 1.25;
    }
    const lanes = Math.min(row.lanes, LANES_SHOWN);
    row.height = row.type === "compute" ? Math.max(1, 0.5 * lanes) : 0.35 + 0.27 * lanes;
    row.top = y;
    y += row.height + 0.1;
  });
  const bottom = y;
  const rowPixels = Math.min(30, Math.max(16, 900 / bottom));
  const lastPredicted = data.rows[data.rows.length - 1];
  const predictedEnd = lastPredicted.top + lastPredicted.height + 0.1;
  const end = Math.max(data.makespan, ...(spans ? spans.s.map((s, k) => s + spans.d[k]) : [0]), 1e-12);
  const whole = [-0.004 * end, 1.012 * end];

  const bar = (row, l) => {
    const inner = row.height * (row.type === "compute" ? 0.86 : 0.8);
    const lane = inner / row.lanes;
    return { y: row.top + (row.height - inner) / 2 + lane * (l + 0.5), width: lane * (row.lanes > 1 ? 0.9 : 1) };
  };
  const tail = (name) => name.split(" .. ").map((n) => n.split(/[./]/).filter(Boolean).slice(-2).join(".") || n).join(" .. ");
  const percent = (share) => `${Number((100 * share).toPrecision(3))}%`;

  // What is drawn: cells are columns; group(k) is an index into the palette, negative for none.
  // A runtime measures calls of several operators: then the device is what both halves have in common.
  const calls = spans ? spans.v.filter((v, k) => spans.c[k] === "compute") : [];
  let by = calls.filter((v) => v < 0).length > calls.length / 2 ? "device" : "kind";
  let chosen = -1;
  let view = whole.slice();
  const groupOf = (cells) => (by === "kind" ? cells.k : by === "module" ? cells.m : cells.i);
  const compute = { noun: "operator", plain: () => null };
  const sets = [
    {
      ...compute, cells: operators, rows: data.rows, text: (k) => tail(operators.n[k]),
      hover: (k) => `<b>${safe(operators.n[k])}</b><br>${safe(operators.kind.names[operators.kind.rows[k]] || "operator")} on ` +
        `${safe(data.devices[operators.i[k]])}<br>${times(operators.s[k], operators.d[k])}<br>weights and cache ${bytes(operators.z[k])}`,
    },
    {
      noun: "transfer", cells: transfers, rows: data.rows, plain: () => "--transfer", text: (k) => (transfers.w ? transfers.w[k] : ""),
      hover: (k) => transfers.w ? `<b>${safe(transfers.n[k])}</b><br>${safe(data.devices[transfers.to[k]])}<br>${times(transfers.s[k], transfers.d[k])}<br>${bytes(transfers.z[k])}`
        : `transfer of <b>${safe(transfers.n[k])}</b><br>${safe(data.devices[data.rows[transfers.r[k]].device])} to ${safe(data.devices[transfers.to[k]])}` +
        `<br>${times(transfers.s[k], transfers.d[k])}<br>${bytes(transfers.z[k])}`,
    },
  ];
  if (spans) {
    sets.push({
      ...compute, noun: "span", cells: spans, rows: measured.rows, text: (k) => (spans.c[k] === "compute" ? tail(spans.n[k]) : ""),
      plain: (k) => ({ transfer: "--transfer", wait: "--wait" })[spans.c[k]] || null,
      hover: (k) => `measured ${spans.c[k]}: <b>${safe(spans.n[k])}</b><br>${safe(measured.rows[spans.r[k]].label)}` +
        `<br>${times(spans.s[k], spans.d[k])}`,
    });
  }
  const total = sets.reduce((sum, set) => sum + set.cells.n.length, 0);

  // Above DETAILED bars, those outside the view are left out, and those below a pixel are gathered in bins of BIN pixels
  // whose strength is the share of the bin that they fill: a bar of one pixel for each would make every row look busy.
  const bars = (set) => {
    const { cells } = set;
    const groups = groupOf(cells) || cells.n.map(() => -1);
    const one = (k) => ({
      k, s: cells.s[k], d: cells.d[k], place: bar(set.rows[cells.r[k]], cells.l ? cells.l[k] : 0), g: groups[k], share: 1, count: 1,
    });
    const every = cells.n.map((_, k) => k);
    if (total <= DETAILED) return every.map(one);
    const pixel = (view[1] - view[0]) / Math.max(200, gantt.clientWidth - 130);
    const margin = (view[1] - view[0]) / 4;
    const width = BIN * pixel;
    const bins = new Map();
    const made = [];
    every.forEach((k) => {
      const s = cells.s[k], d = cells.d[k];
      if (s + d < view[0] - margin || s > view[1] + margin) return;
      if (d >= pixel) { made.push(one(k)); return; }
      const at = Math.floor((s + d / 2) / width);
      const id = `${cells.r[k]} ${cells.l ? cells.l[k] : 0} ${at}`;
      if (!bins.has(id)) bins.set(id, { ...one(k), s: at * width, d: width, time: 0, count: 0, parts: new Map() });
      const bin = bins.get(id);
      bin.count += 1;
      bin.time += d;
      bin.parts.set(groups[k], (bin.parts.get(groups[k]) || 0) + d);
    });
    bins.forEach((bin) => {
      if (bin.count === 1) { made.push({ ...one(bin.k), share: 1 }); return; }
      bin.g = [...bin.parts].sort((x, z) => z[1] - x[1] || x[0] - z[0])[0][0];
      bin.share = Math.min(1, bin.time / width);
      made.push(bin);
    });
    return made;
  };
  const palette = () => [0, 1, 2, 3, 4, 5, 6, 7].map((k) => css(`--c${k}`));
  const colourOf = (colours, g) => (g < 0 ? css("--unknown") : colours[g % (by === "module" ? MODULE_COLOURS : colours.length)]);
  const traces = () => {
    const colours = palette();
    const edge = { width: total <= DETAILED ? 0.6 : 0, color: css("--card") };
    const neutral = { "--transfer": css("--transfer"), "--wait": css("--wait") };
    return sets.map((set) => {
      const drawn = bars(set);
      const plain = drawn.map((b) => set.plain(b.k));
      const strength = (b, k) => (chosen < 0 || (plain[k] === null && b.g === chosen) ? 1 : plain[k] ? 0.3 : 0.15) * Math.max(0.15, b.share);
      return {
        type: "bar", orientation: "h", showlegend: false, hoverinfo: "text",
        base: drawn.map((b) => b.s), x: drawn.map((b) => b.d),
        y: drawn.map((b) => b.place.y), width: drawn.map((b) => b.place.width),
        hovertext: drawn.map((b) => (b.count === 1 ? set.hover(b.k)
          : `${b.count} ${set.noun}s, each shorter than a pixel<br>${percent(b.share)} of ${times(b.s, b.d)}<br>zoom in to see them`)),
        marker: {
          color: drawn.map((b, k) => (plain[k] ? neutral[plain[k]] : colourOf(colours, b.g))),
          opacity: drawn.map(strength), line: edge,
        },
        ...(total <= LABELLED ? { text: drawn.map((b) => (chosen < 0 || b.g === chosen ? safe(set.text(b.k)) : "")), textposition: "inside", insidetextanchor: "middle", textangle: 0 }
          : { textposition: "none" }),
      };
    });
  };

  const layout = () => {
    const ink = css("--ink"), soft = css("--soft");
    const size = narrow() ? 11 : 12.5;
    const rowSize = Math.min(size, 0.55 * rowPixels + 1);
    const line = (x, colour, dash, to) => ({
      type: "line", x0: x, x1: x, y0: 0, y1: to, line: { color: colour, width: 1.4, dash },
    });
    const mark = (x, text, colour, level) => ({
      x, y: 1, yref: "paper", yshift: 13 + 16 * level, xanchor: x > 0.6 * end ? "right" : "left", showarrow: false,
      text, font: { color: colour, size },
    });
    const same = Math.abs(data.bound - data.makespan) <= 1e-6 * data.makespan;
    const marks = [mark(data.makespan, same ? `plan = lower bound ${time(data.bound)}` : `${data.end} ${time(data.makespan)}`, ink, 0)];
    const lines = [line(data.makespan, ink, "solid", predictedEnd)];
    if (data.bound > 0 && !same) {
      marks.push(mark(data.bound, `lower bound ${time(data.bound)}`, css("--accent"), 1));
      lines.push(line(data.bound, css("--accent"), "dash", bottom));
    }
    if (measured) {
      headings.forEach((h) => marks.push({
        x: 0, xref: "paper", xanchor: "left", y: h.y, yanchor: "middle", showarrow: false, text: `<b>${safe(narrow() ? h.text.split(" (")[0] : h.text)}</b>`,
        font: { color: soft, size },
      }));
    }
    const most = narrow() ? 16 : 30;
    return {
      barmode: "overlay", bargap: 0, autosize: true, hovermode: "closest",
      height: Math.round(rowPixels * bottom) + 84,
      margin: { l: 8, r: 10, t: 26 + 16 * (marks.some((m) => m.yshift > 13) ? 1 : 0), b: 44 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size, family: getComputedStyle(document.body).fontFamily },
      uniformtext: { mode: "hide", minsize: 10 },
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hoverlabel: { bgcolor: css("--card"), bordercolor: soft, font: { color: ink, size: 13 }, align: "left", namelength: -1 },
      xaxis: {
        title: { text: `time (${data.unit})`, font: { color: soft, size }, standoff: 6 }, range: view.slice(),
        gridcolor: css("--grid"), zeroline: false, tickfont: { color: soft, size }, nticks: narrow() ? 5 : 12,
        minallowed: whole[0], maxallowed: whole[1], exponentformat: "none",
      },
      yaxis: {
        range: [bottom + 0.05, 0], fixedrange: true, zeroline: false, showgrid: false, automargin: true, tickfont: { size: rowSize },
        tickvals: rows.map((row) => row.top + row.height / 2),
        ticktext: rows.map((row) => (row.type === "compute"
          ? (by === "device" && row.device >= 0 ? `<span style="color:${colourOf(palette(), row.device)}">\u25cf</span> ` : "") + safe(short(row.label, most))
          : `<span style="color:${soft}">${safe(short(row.label, most))}</span>`) + " "),
      },
      shapes: lines, annotations: marks,
    };
  };

  const draw = () => Plotly.react(gantt, traces(), layout(), { displayModeBar: false, responsive: true, doubleClick: false });
  const repaint = () => { draw(); key(); };

  const key = () => {
    const colours = palette();
    const present = new Set(groupOf(operators));
    const names = by === "kind" ? data.kinds : data.modules;
    const chip = (name, colour, g) => {
      const made = document.createElement(g === null ? "span" : "button");
      const swatch = document.createElement("span");
      const label = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = colour;
      label.textContent = name;
      made.append(swatch, label);
      if (g === null) { made.className = "chip"; return made; }
      made.type = "button";
      made.title = name;
      made.setAttribute("aria-pressed", String(chosen === g));
      made.addEventListener("click", () => { chosen = chosen === g ? -1 : g; repaint(); $("key").children[at].focus(); });
      const at = $("key").children.length;
      return made;
    };
    $("key").replaceChildren();
    const entries = by === "device" ? data.used.map((i) => [data.devices[i], i]) : names.map((name, k) => [name, k]);
    entries.filter(([, g]) => present.has(g)).forEach(([name, g]) => $("key").append(chip(name, colourOf(colours, g), g)));
    if (transfers.n.length || (spans && spans.c.includes("transfer"))) $("key").append(chip("transfer", css("--transfer"), null));
    if (spans && spans.c.includes("wait")) $("key").append(chip("wait", css("--wait"), null));
    if (spans && groupOf(spans).some((g, k) => g < 0 && spans.c[k] === "compute")) $("key").append(chip("several operators", css("--unknown"), null));
  };

  const move = (how) => {
    const [a, b] = view;
    const width = b - a, full = whole[1] - whole[0];
    let from = a, to = b;
    if (how === "all") [from, to] = whole;
    if (how === "in") { from = a + width / 4; to = b - width / 4; }
    if (how === "out") { from = a - width / 2; to = b + width / 2; }
    if (how === "left") { from = a - width / 3; to = b - width / 3; }
    if (how === "right") { from = a + width / 3; to = b + width / 3; }
    const span = Math.min(to - from, full);
    from = Math.min(Math.max(from, whole[0]), whole[1] - span);
    view = [from, from + span];
    if (total > DETAILED) draw(); else Plotly.relayout(gantt, { "xaxis.range": view.slice() });
  };

  document.querySelectorAll("[data-move]").forEach((b) => b.addEventListener("click", () => move(b.dataset.move)));
  gantt.addEventListener("keydown", (event) => {
    const how = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" }[event.key];
    if (how && !event.ctrlKey && !event.metaKey && !event.altKey) { move(how); event.preventDefault(); }
  });
  document.querySelectorAll("[name=colour]").forEach((input) => {
    if (input.value === "module" && data.modules.length < 2) input.parentElement.remove();
    input.checked = input.value === by;
    input.addEventListener("change", () => { by = input.value; chosen = -1; repaint(); });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  let wasNarrow = narrow();
  window.addEventListener("resize", () => { if (narrow() !== wasNarrow) { wasNarrow = narrow(); draw(); } });
  repaint();
  gantt.on("plotly_relayout", () => {
    const now = gantt.layout.xaxis.range;
    if (now[0] === view[0] && now[1] === view[1]) return;
    view = now.slice();
    if (total > DETAILED) draw();
  });
  gantt.on("plotly_doubleclick", () => move("all"));

  // The list of operators: a table that shows its first rows until it is asked for all.
  const FIRST = 200;
  let all = false;
  const fill = () => {
    const wanted = $("filter").value.toLowerCase();
    const device = $("on").value;
    const kind = (k) => operators.kind.names[operators.kind.rows[k]];
    const found = operators.n.map((_, k) => k).filter((k) => (device === "" || operators.i[k] === Number(device)) &&
      (wanted === "" || operators.n[k].toLowerCase().includes(wanted) || kind(k).toLowerCase().includes(wanted)));
    const shown = all ? found : found.slice(0, FIRST);
    const body = document.createElement("tbody");
    shown.forEach((k) => {
      const row = body.insertRow();
      const cells = [operators.n[k], kind(k), data.devices[operators.i[k]], time(operators.s[k]), time(operators.d[k]), bytes(operators.z[k])];
      cells.forEach((text, c) => {
        const cell = c === 0 ? row.appendChild(document.createElement("th")) : row.insertCell();
        if (c === 0) cell.scope = "row";
        cell.textContent = text;
      });
    });
    $("operators").tBodies[0].replaceWith(body);
    $("count").textContent = `${found.length} of ${operators.n.length} operators`;
    $("more").hidden = shown.length === found.length;
    $("more").textContent = `Show all ${found.length}`;
  };
  data.used.forEach((i) => {
    const option = document.createElement("option");
    option.value = i;
    option.textContent = data.devices[i];
    $("on").append(option);
  });
  $("filter").addEventListener("input", () => { all = false; fill(); });
  $("on").addEventListener("change", () => { all = false; fill(); });
  $("more").addEventListener("click", () => { all = true; fill(); });
  $("placement-details").addEventListener("toggle", fill, { once: true });
})();
