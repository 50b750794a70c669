// Parts that several views are made of.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { number } from "./words.js";

export const STANDINGS = ["converged", "progressing", "held", "degraded", "unknown"];
const MARKS = { converged: "●", progressing: "◐", held: "■", degraded: "▲", unknown: "?", frozen: "❄" };

// A standing is never told by colour alone.
export function Standing({ is, children }) {
  return html`<span class=${`standing ${is}`}><span aria-hidden="true">${MARKS[is] || "·"}</span> ${children ?? is}</span>`;
}

// How many stand how, as one bar; said in words to those who cannot see it.
export function Bar({ counts, label }) {
  const total = STANDINGS.reduce((sum, name) => sum + (counts[name] || 0), 0);
  const words = STANDINGS.filter((name) => counts[name]).map((name) => `${number(counts[name])} ${name}`).join(", ") || "nothing yet";
  return html`<svg class="bar" role="img" aria-label=${`${label}: ${words}`} viewBox="0 0 100 6" preserveAspectRatio="none">
    ${total ? shares(counts, total).map(([name, from, width]) => html`<rect class=${name} x=${from} y="0" width=${width} height="6"><title>${number(counts[name])} ${name}</title></rect>`) : ""}
  </svg>`;
}

function shares(counts, total) {
  let from = 0;
  return STANDINGS.filter((name) => counts[name]).map((name) => {
    const width = Math.max((100 * counts[name]) / total, 0.75);
    const found = [name, from, width];
    from += width;
    return found;
  });
}

// A line without axes: how a figure went.
export function Spark({ at, values, label }) {
  const most = values.reduce((found, value) => Math.max(found, value), 0);
  const [first, span] = [at[0], at.at(-1) - at[0] || 1];
  const points = values.map((value, index) => `${((100 * (at[index] - first)) / span).toFixed(1)},${(23 - (22 * value) / Math.max(1, most)).toFixed(1)}`).join(" ");
  return html`<svg class="spark" role="img" aria-label=${`${label}: now ${number(values.at(-1))}, at most ${number(most)}`} viewBox="0 0 100 24" preserveAspectRatio="none">
    <polyline points=${values.length > 1 ? points : ""} vector-effect="non-scaling-stroke" />
  </svg>`;
}

// Of rows that carry a message of up to three lines on a phone; in the style sheet it is .rows.told.
export const TOLD_HEIGHT = 92;

// A list of any length: only what can be seen is in the page. `rows` of one height; `row(item)` gives the cells.
export function Rows({ columns, rows, row, keyOf, empty, label, height = 34, look: kind = "" }) {
  const frame = useRef(null);
  const [[top, seen], setSeen] = useState([0, 40]);
  const look = () => {
    const box = frame.current;
    if (box) setSeen([Math.max(0, Math.floor(box.scrollTop / height) - 10), Math.ceil(box.clientHeight / height) + 20]);
  };
  useLayoutEffect(look, [rows.length]);
  useEffect(() => {
    addEventListener("resize", look);
    return () => removeEventListener("resize", look);
  }, []);
  if (!rows.length) return html`<div class="empty">${empty}</div>`;
  const shown = rows.slice(top, top + seen);
  return html`<div class=${`rows ${kind}`} ref=${frame} onScroll=${look} tabindex="0" role="region" aria-label=${label}>
    <table aria-rowcount=${rows.length + 1}>
      <thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>
        ${top > 0 && html`<tr class="space" aria-hidden="true"><td colspan=${columns.length}><svg width="1" height=${top * height} /></td></tr>`}
        ${shown.map((item, index) => html`<tr key=${keyOf(item)} aria-rowindex=${top + index + 2}>${row(item)}</tr>`)}
        ${top + seen < rows.length && html`<tr class="space" aria-hidden="true"><td colspan=${columns.length}><svg width="1" height=${(rows.length - top - shown.length) * height} /></td></tr>`}
      </tbody>
    </table>
  </div>`;
}

// Whether the page is as narrow as a phone, and again when that changes.
export function useNarrow() {
  const screen = matchMedia("(max-width: 640px)");
  const [narrow, setNarrow] = useState(screen.matches);
  useEffect(() => {
    const heard = (event) => setNarrow(event.matches);
    screen.addEventListener("change", heard);
    return () => screen.removeEventListener("change", heard);
  }, []);
  return narrow;
}

// A question that must be answered before anything else. `onClose` ends it, and who came by keyboard is where they were.
export function Dialog({ title, onClose, children }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => {
      box.current?.close();
      before.focus();
    };
  }, []);
  return html`<dialog ref=${box} onCancel=${onClose} aria-labelledby="dialog-title">
    <h2 id="dialog-title">${title}</h2>
    ${children}
  </dialog>`;
}

// Does something that may be refused, and shows the server's words where it is.
export function useDoing() {
  const [state, setState] = useState({ busy: false, error: "" });
  const run = async (work) => {
    setState({ busy: true, error: "" });
    try {
      const found = await work();
      setState({ busy: false, error: "" });
      return found ?? true;
    } catch (error) {
      setState({ busy: false, error: error.message });
      return undefined;
    }
  };
  return { ...state, run };
}

export const Problem = ({ children }) => (children ? html`<p class="problem" role="alert">${children}</p>` : "");

// A command that people can take along.
export function Command({ children }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText([].concat(children).join(""));
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<span class="command"><code>${children}</code><button type="button" class="quiet" onClick=${copy}>${copied ? "copied" : "copy"}</button></span>`;
}
