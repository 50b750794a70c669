// Times and numbers as people read them.
import { html, useEffect, useState } from "./lib.js";

const STEPS = [[60, "s"], [60, "m"], [24, "h"], [Infinity, "d"]];

export function ago(time, now = Date.now()) {
  let amount = Math.max(0, (now - Date.parse(time)) / 1000);
  if (Number.isNaN(amount)) return "";
  for (const [size, unit] of STEPS) {
    if (amount < size) return `${Math.floor(amount)}${unit}`;
    amount /= size;
  }
  return "";
}

// All ages on a page move together, once a second.
const clocks = new Set();
setInterval(() => clocks.forEach((tick) => tick(Date.now())), 1000);

export function Ago({ time, bare }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    clocks.add(setNow);
    return () => clocks.delete(setNow);
  }, []);
  return time ? html`<time datetime=${time} title=${new Date(time).toLocaleString()}>${ago(time, now)}${bare ? "" : " ago"}</time>` : "";
}

export const seconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : value < 60 ? `${Number(value.toPrecision(2))} s` : `${Math.round(value / 60)} min`);
export const number = (value) => (value ?? 0).toLocaleString();
export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

// The kind in the words of a person: "files.files.homeostat.dev" is File; see what the fleet says.
export const shortKind = (name) => name.split(".")[0];
