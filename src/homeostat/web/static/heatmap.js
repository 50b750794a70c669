// Nodes × GPUs on a canvas that is as large as what can be seen of it: ten thousand GPUs are drawn as smoothly as ten.
// A cell is told by its filling and its letter, never by colour alone. Arrow keys go from GPU to GPU, Enter opens.
import { html, useEffect, useLayoutEffect, useReducer, useRef, useState } from "./lib.js";

const HUES = 8;
const SIZES = [[400, 28], [2000, 18], [Infinity, 12]];

// The places of what is known of a GPU; see web/judge.py.
export const [USE, HEALTH, REASON, MEMORY_USED, MEMORY, WATTS, DEGREES, HOLDERS] = [0, 1, 2, 3, 4, 5, 6, 7];

// What a letter stands for: tenants in their order.
export const letterOf = (at) => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[at] ?? "•";

export function HeatMap({ nodes, by, tenants, matches, describe, onPick, label }) {
  const box = useRef(null);
  const canvas = useRef(null);
  const [cursor, setCursor] = useState(null);
  const [width, setWidth] = useState(0);
  const [theme, again] = useReducer((count) => count + 1, 0);
  const drawn = useRef({ key: [], picture: document.createElement("canvas") });
  const places = layoutOf(nodes, width);
  // What is under the pointer changes with every move, the map seldom: it is drawn once, and kept as a picture.
  const draw = () => {
    if (!width) return;
    const key = [nodes, by, tenants, matches, width, theme, box.current.scrollTop, devicePixelRatio];
    if (key.some((part, at) => part !== drawn.current.key[at])) {
      paint(drawn.current.picture, box.current, places, { nodes, by, tenants, matches });
      drawn.current.key = key;
    }
    copy(drawn.current.picture, canvas.current);
    if (cursor && nodes[cursor.node]) mark(canvas.current, box.current, places, cursor);
  };
  useLayoutEffect(() => {
    const follow = new ResizeObserver(() => setWidth(box.current.clientWidth));
    follow.observe(box.current);
    setWidth(box.current.clientWidth);
    return () => follow.disconnect();
  }, []);
  useLayoutEffect(draw);
  useEffect(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const chosen = new MutationObserver(again);
    chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    scheme.addEventListener("change", again);
    return () => {
      chosen.disconnect();
      scheme.removeEventListener("change", again);
    };
  }, []);

  const under = (event) => {
    const frame = box.current.getBoundingClientRect();
    return placeAt(places, nodes, event.clientX - frame.left - box.current.clientLeft, event.clientY - frame.top - box.current.clientTop + box.current.scrollTop);
  };
  const point = (event) => {
    const found = under(event);
    if (found?.node !== cursor?.node || found?.gpu !== cursor?.gpu) setCursor(found || cursor);
  };
  const key = (event) => {
    if (event.key === "Enter" && cursor) return onPick(nodes[cursor.node], cursor.gpu);
    const next = moved(nodes, places, cursor, event.key);
    if (!next) return;
    event.preventDefault();
    setCursor(next);
    show(box.current, places, next);
  };
  const now = cursor && nodes[cursor.node]?.gpus[cursor.gpu] ? describe(nodes[cursor.node], cursor.gpu) : "";
  return html`<div class="heat" ref=${box} tabindex="0" role="application" aria-label=${`${label}. Arrow keys go from GPU to GPU, Enter explains what holds one.`} aria-describedby="heat-cell" onScroll=${draw} onKeyDown=${key} onMouseMove=${point} onClick=${(event) => {
    const found = under(event);
    if (found) onPick(nodes[found.node], found.gpu);
  }}>
      <canvas ref=${canvas} aria-hidden="true"></canvas>
      <svg class="space" width="1" height=${places.height - seenOf(box.current, places)} aria-hidden="true" />
    </div>
    <p id="heat-cell" class="hint cell" aria-live="polite">${now || "Point at a GPU, or use the arrow keys, to see what it is."}</p>`;
}

// Blocks of one node each, as many beside each other as fit.
function layoutOf(nodes, width) {
  const most = nodes.reduce((found, node) => Math.max(found, node.gpus.length), 1);
  const total = nodes.reduce((sum, node) => sum + node.gpus.length, 0);
  const size = SIZES.find(([limit]) => total <= limit)[1];
  const gap = size > 12 ? 12 : 6;
  const across = Math.min(most, Math.max(1, Math.floor((width - gap) / size)));
  const head = size > 12 ? 16 : 0;
  const block = Math.max(across * size, head ? 84 : 0);
  const columns = Math.max(1, Math.floor((width + gap) / (block + gap)));
  const deep = Math.ceil(most / across);
  const line = head + deep * size + gap;
  return { size, gap, across, head, block, columns, line, height: Math.ceil(nodes.length / columns) * line };
}

// How much of its height can be seen at a time: the style sheet says how tall the box may be.
const seenOf = (box, places) => (box ? Math.min(places.height, parseFloat(getComputedStyle(box).maxHeight)) : 0);

const corner = (places, at) => [(at % places.columns) * (places.block + places.gap), Math.floor(at / places.columns) * places.line];

function placeAt(places, nodes, x, y) {
  const column = Math.floor(x / (places.block + places.gap));
  const node = Math.floor(y / places.line) * places.columns + column;
  if (column >= places.columns || !nodes[node]) return null;
  const [left, top] = corner(places, node);
  const across = Math.floor((x - left) / places.size);
  const down = Math.floor((y - top - places.head) / places.size);
  const gpu = down * places.across + across;
  return across >= 0 && across < places.across && down >= 0 && nodes[node].gpus[gpu] ? { node, gpu } : null;
}

function moved(nodes, places, cursor, key) {
  if (!nodes.length || !["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(key)) return null;
  let { node, gpu } = cursor && nodes[cursor.node] ? cursor : { node: 0, gpu: -1 };
  if (key === "Home" || gpu < 0) return { node: 0, gpu: 0 };
  if (key === "End") node = nodes.length - 1;
  if (key === "ArrowRight") [node, gpu] = gpu + 1 < nodes[node].gpus.length ? [node, gpu + 1] : [node + 1, 0];
  if (key === "ArrowLeft") [node, gpu] = gpu > 0 ? [node, gpu - 1] : [node - 1, (nodes[node - 1]?.gpus.length || 1) - 1];
  if (key === "ArrowDown") node += places.columns;
  if (key === "ArrowUp") node -= places.columns;
  return nodes[node] ? { node, gpu: Math.max(0, Math.min(gpu, nodes[node].gpus.length - 1)) } : cursor;
}

function show(box, places, cursor) {
  const [, top] = corner(places, cursor.node);
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + places.line > box.scrollTop + box.clientHeight) box.scrollTop = top + places.line - box.clientHeight;
}

// Drawing

function copy(picture, canvas) {
  if (canvas.width !== picture.width || canvas.height !== picture.height) {
    [canvas.width, canvas.height] = [picture.width, picture.height];
    canvas.style.width = `${picture.width / (devicePixelRatio || 1)}px`;
    canvas.style.height = `${picture.height / (devicePixelRatio || 1)}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(picture, 0, 0);
}

function mark(canvas, box, places, { node, gpu }) {
  const pen = canvas.getContext("2d");
  const scale = devicePixelRatio || 1;
  const [left, top] = corner(places, node);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--focus").trim();
  pen.lineWidth = 2;
  pen.strokeRect(left + (gpu % places.across) * places.size, top + places.head + Math.floor(gpu / places.across) * places.size - box.scrollTop, places.size - 2, places.size - 2);
}

function paint(canvas, box, places, what) {
  const scale = devicePixelRatio || 1;
  const [width, height] = [box.clientWidth, seenOf(box, places)];
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const ink = (name) => style.getPropertyValue(name).trim();
  const inks = { text: ink("--text"), soft: ink("--soft"), line: ink("--line"), edge: ink("--heat-edge"), panel: ink("--panel"), use: ink("--heat-use"), bad: ink("--degraded"), odd: ink("--held"), good: ink("--bar-converged"), hues: Array.from({ length: HUES }, (_, at) => ink(`--hue-${at}`)) };
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.textBaseline = "middle";
  const top = box.scrollTop;
  const first = Math.floor(top / places.line) * places.columns;
  const last = Math.min(what.nodes.length, (Math.floor((top + height) / places.line) + 1) * places.columns);
  for (let at = first; at < last; at++) block(pen, places, what, inks, at, top);
}

function block(pen, places, what, inks, at, top) {
  const node = what.nodes[at];
  const [left, above] = corner(places, at);
  const y = above - top;
  if (places.head) {
    pen.font = "11px system-ui";
    pen.textAlign = "left";
    pen.fillStyle = node.state === "Open" ? inks.soft : inks.odd;
    pen.fillText(node.state === "Open" ? node.name : `${node.name} ${node.state.toLowerCase()}`, left, y + places.head / 2, places.block);
  }
  for (let gpu = 0; gpu < node.gpus.length; gpu++) {
    const x = left + (gpu % places.across) * places.size;
    const under = y + places.head + Math.floor(gpu / places.across) * places.size;
    cell(pen, x, under, places.size - 2, node, gpu, what, inks);
  }
}

function cell(pen, x, y, size, node, gpu, what, inks) {
  const one = node.gpus[gpu];
  const holder = one[HOLDERS][0];
  pen.globalAlpha = what.matches(node, gpu) ? 1 : 0.15;
  pen.lineWidth = 1;
  pen.strokeStyle = inks.edge;
  pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  const [colour, height, mark] = look(node, one, holder, what, inks);
  if (colour) {
    pen.fillStyle = colour;
    pen.fillRect(x, y + size * (1 - height), size, size * height);
  }
  if (one[HOLDERS].length && one[HOLDERS].every((some) => some[3])) stripes(pen, x, y, size, inks.panel);
  if (node.state === "Lost") stripes(pen, x, y, size, inks.odd);
  if (one[HEALTH] === "Failed") cross(pen, x, y, size, inks.bad);
  else if (mark && (size > 10 || mark.length === 1)) {
    pen.font = `${size > 20 ? 11 : size > 12 ? 10 : 8}px system-ui`;
    pen.textAlign = "center";
    pen.fillStyle = inks.text;
    pen.fillText(mark, x + size / 2, y + size / 2 + 0.5, size - 2);
  }
  pen.globalAlpha = 1;
}

// Colour, how full, and the mark, by what one wants to see.
function look(node, one, holder, what, inks) {
  if (what.by === "health") {
    if (node.state === "Lost") return [null, 0, "?"];
    return one[HEALTH] === "Healthy" ? [inks.good, 1, ""] : one[HEALTH] === "Suspect" ? [inks.odd, 1, "!"] : [null, 0, ""];
  }
  if (!holder) return [null, 0, ""];
  const at = what.tenants.indexOf(holder[1]);
  const mark = !holder[0] ? "?" : at < 0 ? "∗" : one[HOLDERS].some((other) => other[1] !== holder[1]) ? "+" : letterOf(at);
  if (what.by === "tenant") return [at < 0 ? inks.line : inks.hues[at % HUES], Math.min(1, one[HOLDERS].reduce((sum, some) => sum + some[2], 0)), mark];
  const use = one[USE];
  return [inks.use, use === null ? 0 : Math.max(use / 100, 0.08), use === null ? "–" : String(use)];
}

function stripes(pen, x, y, size, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, size, size);
  pen.clip();
  pen.strokeStyle = colour;
  pen.beginPath();
  for (let at = -size; at < size; at += 5) {
    pen.moveTo(x + at, y + size);
    pen.lineTo(x + at + size, y);
  }
  pen.stroke();
  pen.restore();
}

function cross(pen, x, y, size, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x + 2, y + 2);
  pen.lineTo(x + size - 2, y + size - 2);
  pen.moveTo(x + size - 2, y + 2);
  pen.lineTo(x + 2, y + size - 2);
  pen.stroke();
}
