"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data) return;
  const $ = (id) => document.getElementById(id);
  const gantt = $("gantt");
  const LABELLED_BARS = 600; // more bars than this get no text on them: measuring text is slow
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
  const time = (t) => Number(t.toPrecision(4)) + " " + data.unit;
  const times = (s, d) => `${time(s)} to ${time(s + d)} (${time(d)})`;
  const measured = data.measured;
  const { operators, transfers } = data;
  const spans = measured ? measured.spans : null;
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
  const end = Math.max(data.makespan, ...(spans ? spans.s.map((s, k) => s + spans.d[k]) : [0]), 1e-12);
  const whole = [-0.004 * end, 1.012 * end];

  const bar = (r, l) => {
    const row = rows[r];
    const inner = row.height * (row.type === "compute" ? 0.86 : 0.8);
    const lane = inner / row.lanes;
    return { y: row.top + (row.height - inner) / 2 + lane * (l + 0.5), width: lane * (row.lanes > 1 ? 0.9 : 1) };
  };
  const column = (cells, first, opts) => {
    const places = cells.r.map((r, k) => bar(first + r, cells.l ? cells.l[k] : 0));
    return {
      type: "bar", orientation: "h", base: cells.s, x: cells.d,
      y: places.map((p) => p.y), width: places.map((p) => p.width),
      hoverinfo: "text", showlegend: false, textposition: "none", ...opts,
    };
  };

  let by = "kind";
  let chosen = -1;
  const groupNames = () => (by === "kind" ? data.kinds : by === "module" ? data.modules : data.used.map((i) => data.devices[i]));
  const palette = () => [0, 1, 2, 3, 4, 5, 6, 7].map((k) => css(`--c${k}`));
  const groups = (cells) => (by === "kind" ? cells.k : by === "module" ? cells.m : cells.i);
  const colourOf = (colours, g) => (g < 0 ? css("--unknown") : colours[g % colours.length]);
  const paint = () => {
    const colours = palette();
    const dim = (g) => (chosen < 0 || g === chosen ? 1 : 0.15);
    const own = groups(operators);
    const made = [
      { color: own.map((g) => colourOf(colours, g)), opacity: own.map(dim) },
      { color: css("--transfer"), opacity: chosen < 0 ? 1 : 0.3 },
    ];
    if (spans) {
      const theirs = groups(spans);
      const plain = { transfer: css("--transfer"), wait: css("--wait") };
      made.push({
        color: theirs.map((g, k) => plain[spans.c[k]] || colourOf(colours, g)),
        opacity: theirs.map((g, k) => (spans.c[k] === "compute" ? dim(g) : chosen < 0 ? 1 : 0.3)),
      });
    }
    const edge = operators.n.length <= 2000 ? 0.6 : 0;
    return made.map((m) => ({ ...m, line: { width: edge, color: css("--card") } }));
  };

  const labelled = operators.n.length + transfers.n.length + (spans ? spans.n.length : 0) <= LABELLED_BARS;
  const last = (name) => { const parts = name.split(/[./]/).filter(Boolean); return parts[parts.length - 1] || name; };
  const traces = () => {
    const made = [
      column(operators, 0, {
        hovertext: operators.n.map((n, k) => `<b>${safe(n)}</b><br>${safe(operators.kind.names[operators.kind.rows[k]] || "operator")} on ` +
          `${safe(data.devices[operators.i[k]])}<br>${times(operators.s[k], operators.d[k])}<br>weights and cache ${bytes(operators.z[k])}`),
        ...(labelled ? { text: operators.n.map((n) => safe(last(n))), textposition: "inside", insidetextanchor: "middle", textangle: 0 } : {}),
      }),
      column(transfers, 0, {
        hovertext: transfers.n.map((n, k) => `transfer of <b>${safe(n)}</b><br>${safe(rows[transfers.r[k]].label)}` +
          `<br>${times(transfers.s[k], transfers.d[k])}<br>${bytes(transfers.z[k])}`),
      }),
    ];
    if (spans) {
      made.push(column(spans, data.rows.length, {
        hovertext: spans.n.map((n, k) => `measured ${spans.c[k]}: <b>${safe(n)}</b><br>${safe(rows[data.rows.length + spans.r[k]].label)}` +
          `<br>${times(spans.s[k], spans.d[k])}`),
        ...(labelled ? { text: spans.n.map((n, k) => (spans.c[k] === "compute" ? safe(last(n)) : "")), textposition: "inside", insidetextanchor: "middle", textangle: 0 } : {}),
      }));
    }
    paint().forEach((marker, k) => { made[k].marker = marker; });
    return made;
  };

  const layout = () => {
    const ink = css("--ink"), soft = css("--soft");
    const size = narrow() ? 11 : 12.5;
    const line = (x, colour, dash) => ({
      type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: colour, width: 1.4, dash },
    });
    const mark = (x, text, colour, level) => ({
      x, y: 1, yref: "paper", yshift: 10 + 16 * level, xanchor: x > 0.6 * end ? "right" : "left", showarrow: false,
      text, font: { color: colour, size },
    });
    const same = Math.abs(data.bound - data.makespan) <= 1e-6 * data.makespan;
    const marks = [mark(data.makespan, same ? `plan = lower bound ${time(data.bound)}` : `plan ${time(data.makespan)}`, ink, 0)];
    const lines = [line(data.makespan, ink, "solid")];
    if (data.bound > 0 && !same) {
      marks.push(mark(data.bound, `lower bound ${time(data.bound)}`, css("--accent"), 1));
      lines.push(line(data.bound, css("--accent"), "dash"));
    }
    if (measured) {
      headings.forEach((h) => marks.push({
        x: 0, xref: "paper", xanchor: "left", y: h.y, yanchor: "middle", showarrow: false, text: `<b>${safe(narrow() ? h.text.split(" (")[0] : h.text)}</b>`,
        font: { color: soft, size },
      }));
    }
    const most = narrow() ? 13 : 30;
    return {
      barmode: "overlay", bargap: 0, autosize: true, hovermode: "closest",
      height: Math.round(30 * bottom) + 84,
      margin: { l: 8, r: 10, t: 24 + 16 * (marks.some((m) => m.yshift > 10) ? 1 : 0), b: 44 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size, family: getComputedStyle(document.body).fontFamily },
      uniformtext: { mode: "hide", minsize: 10 },
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hoverlabel: { bgcolor: css("--card"), bordercolor: soft, font: { color: ink, size: 13 }, align: "left", namelength: -1 },
      xaxis: {
        title: { text: `time (${data.unit})`, font: { color: soft, size }, standoff: 6 }, range: whole.slice(),
        gridcolor: css("--grid"), zeroline: false, tickfont: { color: soft, size }, nticks: narrow() ? 5 : 12,
        minallowed: whole[0], maxallowed: whole[1], exponentformat: "none",
      },
      yaxis: {
        range: [bottom + 0.05, 0], fixedrange: true, zeroline: false, showgrid: false, automargin: true,
        tickvals: rows.map((row) => row.top + row.height / 2),
        ticktext: rows.map((row) => (row.type === "compute"
          ? (by === "device" && row.device >= 0 ? `<span style="color:${colourOf(palette(), row.device)}">\u25cf</span> ` : "") + safe(short(row.label, most))
          : `<span style="color:${soft}">${safe(short(row.label, most))}</span>`) + " "),
      },
      shapes: lines, annotations: marks,
    };
  };

  const config = { displayModeBar: false, responsive: true, doubleClick: "reset" };
  const draw = () => Plotly.react(gantt, traces(), layout(), config);
  const repaint = () => {
    const made = paint();
    Plotly.restyle(gantt, { marker: made }, made.map((_, k) => k));
    Plotly.relayout(gantt, { "yaxis.ticktext": layout().yaxis.ticktext });
    key();
  };

  const key = () => {
    const colours = palette();
    const present = new Set([...groups(operators)]);
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
    const entries = by === "device" ? data.used.map((i) => [data.devices[i], i]) : groupNames().map((name, k) => [name, k]);
    entries.filter(([, g]) => present.has(g)).forEach(([name, g]) => $("key").append(chip(name, colours[g % 8], g)));
    if (transfers.n.length || (spans && spans.c.includes("transfer"))) $("key").append(chip("transfer", css("--transfer"), null));
    if (spans && spans.c.includes("wait")) $("key").append(chip("wait", css("--wait"), null));
    if (spans && groups(spans).some((g, k) => g < 0 && spans.c[k] === "compute")) $("key").append(chip("several operators", css("--unknown"), null));
  };

  const move = (how) => {
    const [a, b] = gantt.layout.xaxis.range;
    const width = b - a, full = whole[1] - whole[0];
    let from = a, to = b;
    if (how === "all") [from, to] = whole;
    if (how === "in") { from = a + width / 4; to = b - width / 4; }
    if (how === "out") { from = a - width / 2; to = b + width / 2; }
    if (how === "left") { from = a - width / 3; to = b - width / 3; }
    if (how === "right") { from = a + width / 3; to = b + width / 3; }
    const span = Math.min(to - from, full);
    from = Math.min(Math.max(from, whole[0]), whole[1] - span);
    Plotly.relayout(gantt, { "xaxis.range": [from, from + span] });
  };

  document.querySelectorAll("[data-move]").forEach((b) => b.addEventListener("click", () => move(b.dataset.move)));
  gantt.addEventListener("keydown", (event) => {
    const how = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" }[event.key];
    if (how && !event.ctrlKey && !event.metaKey && !event.altKey) { move(how); event.preventDefault(); }
  });
  document.querySelectorAll("[name=colour]").forEach((input) => {
    if (input.value === "module" && data.modules.length < 2) input.parentElement.remove();
    input.addEventListener("change", () => { by = input.value; chosen = -1; repaint(); });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw(); key(); });
  let wasNarrow = narrow();
  window.addEventListener("resize", () => { if (narrow() !== wasNarrow) { wasNarrow = narrow(); draw(); } });
  draw();
  key();

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
