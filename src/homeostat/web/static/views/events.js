// What was said of things, newest first; searchable, and each search has its address.
import { html, useMemo, useRef, useState } from "../lib.js";
import { useTopics } from "../live.js";
import { Problem, Rows, TOLD_HEIGHT, useNarrow } from "../parts.js";
import { Link, pathTo, setQuery, useRoute } from "../router.js";
import { Ago, many } from "../words.js";

export const Tabs = ({ audit }) => html`<nav class="tabs" aria-label="Events or audit"><${Link} to="events" aria-current=${audit ? undefined : "page"}>What was said<//><${Link} to="events/audit" aria-current=${audit ? "page" : undefined}>Who did what<//></nav>`;

export function Events() {
  const narrow = useNarrow();
  const { query } = useRoute();
  const known = useRef(new Map());
  const [version, setVersion] = useState(0);
  const [problem, setProblem] = useState("");
  useTopics({ events: { topic: "events" } }, (_, words) => {
    if (words.error) return setProblem(words.error);
    if (words.whole) known.current = new Map();
    for (const event of words.events) known.current.set(event.id, event);
    setProblem("");
    setVersion((last) => last + 1);
  });
  const wanted = (query.get("q") || "").toLowerCase();
  const warnings = query.get("type") === "Warning";
  const shown = useMemo(() => {
    const found = [...known.current.values()].filter(
      (event) => (!warnings || event.type === "Warning") && (!wanted || `${event.reason} ${event.message} ${event.about.kind}/${event.about.name} ${event.about.namespace}`.toLowerCase().includes(wanted)),
    );
    return found.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
  }, [version, wanted, warnings]);
  return html`<main>
    <header class="title"><h1>Events</h1><p>${many(known.current.size, "event")}</p><${Tabs} /></header>
    <div class="filters" role="search">
      <input type="search" aria-label="Filter events" placeholder="Filter by reason, message or object" value=${query.get("q") || ""} onInput=${(event) => setQuery({ q: event.target.value })} />
      <button type="button" class=${`chip ${warnings ? "on" : ""}`} aria-pressed=${warnings} onClick=${() => setQuery({ type: warnings ? "" : "Warning" })}>Warnings only</button>
    </div>
    <${Problem}>${problem}<//>
    <${Rows}
      label="Events"
      columns=${narrow ? ["When", "What"] : ["When", "Reason", "About", "What"]}
      height=${narrow ? TOLD_HEIGHT : undefined}
      look=${narrow ? "tall told" : ""}
      rows=${shown}
      keyOf=${(event) => event.id}
      empty=${version ? "No event matches. Events are kept for an hour." : problem ? "" : "Loading…"}
      row=${(event) => {
        const when = html`<${Ago} time=${event.at} />${event.count > 1 ? ` ×${event.count}` : ""}`;
        const why = html`<span class=${event.type === "Warning" ? "standing held" : ""}>${event.reason}</span>`;
        const about = html`<${Link} to=${pathTo("find", event.about.apiVersion, event.about.kind, event.about.namespace || "-", event.about.name)}>${event.about.kind} ${event.about.name}<//>`;
        if (narrow) return html`<td>${when}<br />${why}</td><td>${about}<span class="message">${event.message}</span></td>`;
        return html`<td>${when}</td><td>${why}</td><td title=${`${event.about.kind} ${event.about.namespace}/${event.about.name}`}>${about}</td><td class="message" title=${event.message}>${event.message}</td>`;
      }}
    />
  </main>`;
}
