// Every view has an address of its own: /ui/kinds/files.files.homeostat.dev can be sent to a colleague.
import { html, useEffect, useState } from "./lib.js";

const BASE = "/ui/";
const listeners = new Set();

export function go(path, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", BASE + path);
  for (const heard of listeners) heard();
}

addEventListener("popstate", () => listeners.forEach((heard) => heard()));

function here() {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : "";
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(location.search) };
}

export function useRoute() {
  const [route, setRoute] = useState(here());
  useEffect(() => {
    const heard = () => setRoute(here());
    listeners.add(heard);
    return () => listeners.delete(heard);
  }, []);
  return route;
}

export const pathTo = (...parts) => parts.map(encodeURIComponent).join("/");

// The address of a resource; one without a namespace has a dash in its place.
export const resourcePath = (kind, namespace, name) => pathTo("resources", kind, namespace || "-", name);

// Keeps what is typed into a view (a filter, say) in its address.
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  for (const heard of listeners) heard();
}

export function Link({ to, children, ...rest }) {
  const follow = (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${BASE + to} onClick=${follow} ...${rest}>${children}</a>`;
}
