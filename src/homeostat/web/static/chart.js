// Lines over time. Each line has its own dashes, so that nobody needs the colours.
import uPlot from "./vendor/uplot.js";
import { html, useEffect, useLayoutEffect, useRef } from "./lib.js";

const DASHES = { solid: undefined, dashed: [7, 4], dotted: [2, 3] };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const HEIGHT = 150;

// `lines`: [{ name, colour (a variable of the style sheet), dash, fill, step }]; `data`: times in seconds, then one array a line.
export function Chart({ lines, data, label }) {
  const box = useRef(null);
  const plot = useRef(null);
  useLayoutEffect(() => {
    const made = (plot.current = new uPlot(options(lines, box.current.clientWidth), data, box.current));
    const follow = new ResizeObserver(() => made.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    follow.observe(box.current);
    const redraw = () => made.redraw();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const theme = new MutationObserver(redraw);
    scheme.addEventListener("change", redraw);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      follow.disconnect();
      theme.disconnect();
      scheme.removeEventListener("change", redraw);
      made.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${label}></div>`;
}

function times(_, splits, axis, space, step) {
  const form = { hour: "2-digit", minute: "2-digit", hour12: false, ...(step < 60 ? { second: "2-digit" } : {}) };
  return splits.map((at) => new Date(1000 * at).toLocaleTimeString([], form));
}

function options(lines, width) {
  const axis = { stroke: () => colour("--soft"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { stroke: () => colour("--line") }, font: "11px system-ui" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_, low, high) => [0, Math.max(1, (high || 0) * 1.15)] } },
    axes: [{ ...axis, space: 80, values: times }, { ...axis, size: 38, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] }],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        stroke: () => colour(line.colour),
        width: 2,
        dash: DASHES[line.dash],
        fill: line.fill ? () => `${colour(line.colour)}33` : undefined,
        paths: line.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: false },
      })),
    ],
  };
}

// What the dashes mean.
export function Legend({ lines }) {
  return html`<p class="legend" aria-hidden="true">${lines.map(
    (line) => html`<span><svg width="28" height="8"><line class=${`line ${line.class}`} x1="0" y1="4" x2="28" y2="4" stroke-width="2" stroke-dasharray=${(DASHES[line.dash] || []).join(" ")} /></svg> ${line.name}</span>`,
  )}</p>`;
}
