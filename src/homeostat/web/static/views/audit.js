// Who did what: the audit log, newest first and live. A search has its address, and so has each record.
import { html, useMemo, useRef, useState } from "../lib.js";
import { useTopics } from "../live.js";
import { Problem, Rows, TOLD_HEIGHT, useNarrow } from "../parts.js";
import { Link, pathTo, setQuery, useRoute } from "../router.js";
import { Ago, many } from "../words.js";
import { Tabs } from "./events.js";

const KEPT = 5000;
const READS = ["get", "list", "watch"];

export function Audit() {
  const narrow = useNarrow();
  const { query } = useRoute();
  const known = useRef(new Map());
  const [version, setVersion] = useState(0);
  const [problem, setProblem] = useState("");
  const machines = query.get("machines") === "true";
  useTopics({ audit: { topic: "audit", machines } }, (_, words) => {
    if (words.error) return setProblem(words.error);
    if (words.whole) known.current = new Map();
    for (const record of words.records) known.current.set(record.id, record);
    if (known.current.size > KEPT) known.current = new Map([...known.current.values()].sort(byTime).slice(0, KEPT).map((one) => [one.id, one]));
    setProblem("");
    setVersion((last) => last + 1);
  });
  const wanted = (query.get("q") || "").toLowerCase();
  const only = query.get("only") || "";
  const shown = useMemo(
    () => [...known.current.values()].filter((one) => (!wanted || text(one).includes(wanted)) && (only !== "refused" || one.code >= 400) && (only !== "writes" || (one.code < 400 && !READS.includes(one.verb) && !one.dryRun))).sort(byTime),
    [version, wanted, only],
  );
  const chip = (on, name, change) => html`<button type="button" class=${`chip ${on ? "on" : ""}`} aria-pressed=${on} onClick=${() => setQuery(change)}>${name}</button>`;
  return html`<main>
    <header class="title"><h1>Audit</h1><p>${many(known.current.size, "record")}</p><${Tabs} audit /></header>
    <div class="filters" role="search">
      <input type="search" aria-label="Filter records" placeholder="Filter by who, verb, object, field, change set or id" value=${query.get("q") || ""} onInput=${(event) => setQuery({ q: event.target.value })} />
      ${chip(only === "writes", "Writes", { only: only === "writes" ? "" : "writes" })}
      ${chip(only === "refused", "Refused", { only: only === "refused" ? "" : "refused" })}
      ${chip(machines, "The server's own parts too", { machines: machines ? "" : "true" })}
    </div>
    <${Problem}>${problem}<//>
    ${!problem && html`<${Rows}
      label="Records"
      columns=${narrow ? ["When", "What"] : ["When", "Who", "Code", "What"]}
      height=${narrow ? TOLD_HEIGHT : undefined}
      look=${narrow ? "tall told" : ""}
      rows=${shown}
      keyOf=${(one) => one.id}
      empty=${version ? "No record matches. The last thousand are looked through, and what comes." : "Loading…"}
      row=${(one) => {
        const when = html`<${Link} to=${`events/audit?q=${one.id}`} title="the address of this record"><${Ago} time=${one.time} /><//>`;
        const code = html`<span class=${one.code >= 400 ? "standing held" : ""}>${one.code}${one.dryRun ? " dry run" : ""}</span>`;
        if (narrow) return html`<td>${when}<br />${code}</td><td title=${who(one)}>${who(one)}<span class="message"><${What} record=${one} /></span></td>`;
        return html`<td>${when}</td><td title=${who(one)}>${who(one)}</td><td>${code}</td><td class="message" title=${what(one)}><${What} record=${one} /></td>`;
      }}
    />`}
  </main>`;
}

const byTime = (a, b) => (a.time < b.time ? 1 : a.time > b.time ? -1 : 0);
const who = (one) => `${one.user?.name || "nobody"}${one.impersonatedBy ? ` (in truth ${one.impersonatedBy.name})` : ""}`;

// The deed, and what there is to say of it.
function deed(one) {
  const thing = one.object;
  const title = thing?.name ? ` ${thing.namespace ? `${thing.namespace}/` : ""}${thing.name}` : thing?.namespace ? ` in ${thing.namespace}` : "";
  const fields = (one.fieldsChanged || []).filter((path) => !path.includes("homeostat.dev/change-set"));
  return [`${one.verb} ${thing ? `${thing.resource}${thing.subresource ? `/${thing.subresource}` : ""}${title}` : one.path || ""}`, `${fields.length ? ` (${fields.join(", ")})` : ""}${one.reason ? `: ${one.reason}` : ""}`];
}

const what = (one) => deed(one).join("");
const text = (one) => `${one.id} ${who(one)} ${what(one)} ${one.changeSet || ""} ${one.code} ${one.sourceIP || ""}`.toLowerCase();

function What({ record }) {
  const thing = record.object;
  const kind = thing && (thing.group ? `${thing.resource}.${thing.group}` : thing.resource);
  const set = record.changeSet ? html` <${Link} to=${pathTo("changesets", record.changeSet)}>${record.changeSet}<//>` : "";
  const [did, more] = deed(record);
  if (!thing?.name) return html`${did}${more}${set}`;
  const about = did.slice(record.verb.length + 1);
  return html`${record.verb} <${Link} to=${pathTo("resources", kind, thing.namespace || "-", thing.name)}>${about}<//>${more}${set}`;
}
