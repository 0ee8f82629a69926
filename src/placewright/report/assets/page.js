// What all parts of the page share: words, colours, the tip, the theme and the keys; then the parts are started.
const COLOURS = 8, LARGEST_CANVAS = 16000;
const data = JSON.parse($("data").textContent);
const colours = {};
let palette = [], family = "sans-serif", zoomed = 1;  // zoomed: on large screens the page is set larger, and so is what is drawn

function $(id) { return document.getElementById(id); }
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let k = 0;
  while (n >= 999.5 && k < 4) { n /= 1024; k += 1; }
  return `${k ? Number(n.toPrecision(3)) : n} ${units[k]}`;
}
function time(t) {
  const seconds = t * data.unit_s;
  const [unit, factor] = [["s", 1], ["ms", 1e-3], ["us", 1e-6]].find(([, f]) => seconds >= 0.9995 * f) || ["ns", 1e-9];
  return t ? `${Number((seconds / factor).toPrecision(4))} ${unit}` : "0 s";
}
function percent(share) { return `${Number((100 * share).toPrecision(share >= 0.1 ? 3 : 2))}%`; }
function kindOf(k) { return data.operators.kind.names[data.operators.kind.rows[k]] || "operator"; }
function tail(name) { return name.split(" .. ").map((n) => n.split(/[./]/).filter(Boolean).slice(-2).join(".") || n).join(" .. "); }
// The beginning of a text that fits into so many pixels; nothing when that is no use.
function fitted(ctx, text, room) {
  if (room < 16 || !text) return "";
  if (text.length * 16 < room || (text.length < 200 && ctx.measureText(text).width <= room)) return text;
  let k = Math.min(text.length - 1, Math.ceil(room / 4));
  while (k > 1 && ctx.measureText(`${text.slice(0, k)}\u2026`).width > room) k -= 1;
  return k > 2 ? `${text.slice(0, k)}\u2026` : "";
}
// Black or white, whichever is easier to read on a colour.
function inkOn(colour) {
  const [r, g, b] = colour.match(/[\d.]+/g).map((x) => (Number(x) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.19 ? "#10100e" : "#ffffff";
}
function wide(canvas) { return canvas.clientWidth / zoomed; }
function point(event) { return { x: event.offsetX / zoomed, y: event.offsetY / zoomed }; }
// A canvas as sharp as the screen, and no larger than browsers can make one.
function sized(canvas, width, height) {
  const ratio = Math.min(zoomed * (window.devicePixelRatio || 1), LARGEST_CANVAS / height);
  canvas.style.height = `${height * zoomed}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  return ctx;
}
function soon(act) {
  if (act.waits) return;
  act.waits = true;
  requestAnimationFrame(() => { act.waits = false; act(); });
}
function press(keys, event) {
  const act = keys[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  act();
  event.preventDefault();
}
function chip(name, colour, pressed, act) {
  const made = document.createElement(act ? "button" : "span"), swatch = document.createElement("span"), label = document.createElement("span");
  swatch.className = "swatch";
  swatch.style.background = colour;
  label.textContent = name;
  made.append(swatch, label);
  if (!act) { made.className = "chip"; return made; }
  made.type = "button";
  made.title = name;
  made.setAttribute("aria-pressed", String(pressed));
  made.addEventListener("click", act);
  return made;
}
function tip(where, lines) {
  const box = $("tip");
  box.hidden = !where;
  if (!where) return;
  box.replaceChildren(...lines.map((line) => { const one = document.createElement("div"); one.textContent = line; return one; }));
  const { offsetWidth: w, offsetHeight: h } = box;
  box.style.left = `${Math.max(4, Math.min(where.clientX + 14, window.innerWidth - w - 8))}px`;
  box.style.top = `${where.clientY + 18 + h > window.innerHeight ? Math.max(4, where.clientY - h - 12) : where.clientY + 18}px`;
}
// Colours as the style sheet has them now: a canvas can't read its variables.
function readColours() {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const read = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  ["--ink", "--soft", "--grid", "--card", "--accent", "--track", "--transfer", "--wait", "--unknown"].forEach((name) => { colours[name] = read(name); });
  palette = Array.from({ length: COLOURS }, (_, k) => read(`--c${k}`));
  family = getComputedStyle(document.body).fontFamily;
  zoomed = parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;
  probe.remove();
}

const THEMES = ["auto", "dark", "light"];
function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  try { localStorage.setItem("placewright-theme", theme); } catch { /* a page from a file may have none */ }
}
function nextTheme() {
  const now = document.documentElement.dataset.theme || "auto";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
  repaint();
}
let repaint = () => {};
(() => {
  let kept = null;
  try { kept = localStorage.getItem("placewright-theme"); } catch { /* the same */ }
  setTheme(THEMES.includes(kept) ? kept : "auto");
  $("theme").addEventListener("click", nextTheme);
  $("help").addEventListener("click", () => $("keys").showModal());
})();
const go = (id) => () => { const to = $(id); if (to) { to.focus({ preventScroll: true }); to.closest("section").scrollIntoView({ block: "start" }); } };
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea, dialog")) return;
  press({ "?": () => $("keys").showModal(), t: nextTheme, l: go("timeline-view"), m: go("map-view"), "/": () => { if ($("filter")) { $("placement-details").open = true; go("filter")(); } } }, event);
});

// Names are front-coded: p characters of the one before, then n.
function decode(cells) {
  let before = "";
  cells.n = cells.n.map((rest, k) => (before = before.slice(0, cells.p[k]) + rest));
}
function start() {
  const { operators, transfers, measured } = data;
  [operators, transfers, ...(measured ? [measured.spans] : [])].forEach(decode);
  const row = new Map(data.rows.flatMap((r, k) => (r.type === "compute" ? [[r.device, k]] : [])));
  operators.r = operators.i.map((i) => row.get(i));
  if (measured) {
    const { spans } = measured, others = spans.n.values();
    spans.n = spans.v.map((v) => (v < 0 ? others.next().value : operators.n[v]));
    spans.k = spans.v.map((v) => (v < 0 ? -1 : operators.k[v]));
    spans.m = spans.v.map((v) => (v < 0 ? -1 : operators.m[v]));
    spans.i = spans.r.map((r) => measured.rows[r].device);
  }
  readColours();
  const state = { by: "device", chosen: -1, selected: -1, focus: null };
  const parts = [];
  const redraw = () => parts.forEach((part) => { soon(part.draw); part.key(); });
  parts.push(timelineOf(data, state, redraw), mapOf(data, state, redraw));
  operatorList(data);
  repaint = () => { readColours(); redraw(); };
  parts.forEach((part) => { part.draw(); part.key(); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint());
  let width = 0;
  new ResizeObserver(() => { if (document.body.clientWidth !== width) { width = document.body.clientWidth; repaint(); } }).observe(document.body);
  window.placewright = { state, view: parts[0].view, root: parts[1].root };  // what tests of the page read
}
if (data) start();
