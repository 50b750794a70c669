// One resource: what is declared, what is there, what was done about it and why.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { objectPath, useKind } from "../kinds.js";
import { useTopics } from "../live.js";
import { Problem, Standing } from "../parts.js";
import { Link, pathTo, resourcePath } from "../router.js";
import { get } from "../session.js";
import { Ago } from "../words.js";
import { History } from "./history.js";

const WORKLOADS = "workloads.gpu.homeostat.dev";

export function Resource({ kindName, namespace, name }) {
  const kind = useKind(kindName);
  if (kind === null) return html`<main><p class="loading">Loading…</p></main>`;
  if (kind === undefined) return html`<main><p class="empty">The server has no kind ${kindName}.</p></main>`;
  return html`<${Known} kind=${kind} namespace=${namespace === "-" ? "" : namespace} name=${name} />`;
}

function Known({ kind, namespace, name }) {
  const [seen, setSeen] = useState({});
  const [problem, setProblem] = useState("");
  const where = { apiVersion: kind.apiVersion, kind: kind.kind, namespace, name };
  useTopics({ object: { topic: "object", ...where } }, (_, words) => {
    setProblem(words.error || "");
    if (!words.error) setSeen((last) => ({ ...last, ...words }));
  });
  const uid = seen.object?.metadata.uid;
  return html`<main class="resource">
    <header class="title">
      <h1>${name}</h1>
      <p><${Link} to=${pathTo("kinds", kind.name)}>${kind.kind}<//>${namespace ? ` in ${namespace}` : ""}${kind.name === WORKLOADS ? html` · <${Link} to=${pathTo("gpu", "workloads", namespace, name)}>why it waits or runs<//>` : ""}</p>
      ${seen.object && html`<${Now} object=${seen.object} />`}
    </header>
    <${Problem}>${problem}<//>
    ${seen.object === null && html`<p class="empty">It is not there. ${kind.kind} ${name} was deleted, or never declared.</p><section class="panel" aria-labelledby="history"><h2 id="history">History</h2><${History} kind=${kind} namespace=${namespace} name=${name} version="" /></section>`}
    ${seen.object && html`<${Behind} kind=${kind} namespace=${namespace} name=${name} take=${(words) => setSeen((last) => ({ ...last, ...words }))} />
      <div class="columns">
        <section class="panel wide" aria-labelledby="sides"><h2 id="sides">Declared, last applied, observed</h2><${Sides} object=${seen.object} /></section>
        ${seen.chain && html`<section class="panel" aria-labelledby="explained"><h2 id="explained">Why it is so</h2><${Explained} chain=${seen.chain} /></section>`}
        <section class="panel" aria-labelledby="conditions"><h2 id="conditions">Conditions</h2><${Conditions} object=${seen.object} /></section>
        ${seen.root?.children.length > 0 && html`<section class="panel" aria-labelledby="family"><h2 id="family">What it owns</h2><${Family} root=${seen.root} /></section>`}
        <section class="panel wide" aria-labelledby="history"><h2 id="history">History</h2><${History} key=${uid} kind=${kind} namespace=${namespace} name=${name} version=${`${seen.object.metadata.generation}/${seen.object.metadata.annotations?.["homeostat.dev/change-set"]}`} /></section>
        <section class="panel wide" aria-labelledby="timeline"><h2 id="timeline">Timeline</h2><${Timeline} key=${uid} kind=${kind} namespace=${namespace} name=${name} object=${seen.object} uid=${uid} /></section>
        <section class="panel wide" aria-labelledby="whole"><h2 id="whole">The whole object</h2><details><summary>metadata.generation ${seen.object.metadata.generation}, resourceVersion ${seen.object.metadata.resourceVersion}</summary><pre tabindex="0">${JSON.stringify({ ...seen.object, metadata: { ...seen.object.metadata, managedFields: undefined } }, null, 2)}</pre></details></section>
      </div>`}
  </main>`;
}

// What costs the server a look at the whole fleet comes after the resource itself.
function Behind({ kind, namespace, name, take }) {
  const about = { kind: kind.name, namespace, name };
  useTopics({ explain: { topic: "explain", ...about }, family: { topic: "family", ...about } }, (_, words) => words.error || take(words));
  return "";
}

function Now({ object }) {
  const [how, why] = standing(object);
  const drift = object.status?.drift;
  return html`<div class="now"><${Standing} is=${how} /> ${why && html`<span>${why}</span>`}
    ${drift && html`<span class="hint">${CAUSES[drift.cause] || drift.cause}, <${Ago} time=${drift.since} />${drift.changeSet ? html`, <${Link} to=${pathTo("changesets", drift.changeSet)}>${drift.changeSet}<//>` : ""}</span>`}
    <span class="hint">observed <${Ago} time=${object.status?.observedAt} /></span></div>`;
}

const CAUSES = { intent: "the declaration changed", drift: "reality changed", both: "the declaration changed, and reality too" };

// The same words as in lists: see loop/standing.py.
function standing(object) {
  const said = {};
  for (const one of object.status?.conditions || []) if ([undefined, object.metadata.generation].includes(one.observedGeneration)) said[one.type] = one;
  const ready = said.Ready;
  if (!ready) return [object.status?.conditions?.length ? "progressing" : "unknown", "no loop has looked at it yet"];
  if (ready.status === "True") return ["converged", ""];
  if (ready.status === "Unknown") return ["unknown", ready.message];
  if (ready.reason === "Held") return ["held", ready.message];
  return said.Degraded?.status === "True" ? ["degraded", said.Degraded.message] : ["progressing", ready.message];
}

const CHANGE = /^([~+-]) (.+?): (.*?)(?: → (.*?))?(?:  \(([^()]*)\))?$/;

function* fieldsOf(value, path = "") {
  if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) for (const [key, below] of Object.entries(value)) yield* fieldsOf(below, path ? `${path}.${key}` : key);
  else if (path) yield [path, JSON.stringify(value)];
}

// Every field that the provider sees: what it should be, what was last applied, what is there. Those that differ come first.
function sidesOf(object) {
  const rows = new Map();
  const last = object.status?.lastApplied;
  const how = standing(object)[0];
  if (how === "unknown") {
    for (const [path, value] of fieldsOf(object.spec ?? {})) rows.set(path, { path, declared: value, applied: "", observed: "(unknown)" });
    for (const [path, value] of fieldsOf(last ?? {})) rows.set(path, { declared: "", ...rows.get(path), path, applied: value, observed: "(unknown)" });
    return [...rows.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
  }
  for (const [path, value] of fieldsOf(last ?? object.spec ?? {})) rows.set(path, { path, declared: value, applied: last ? value : "", observed: last || how === "converged" ? value : "" });
  const absent = object.status?.drift?.op === "create";
  for (const line of object.status?.drift?.changes || []) {
    const found = CHANGE.exec(line);
    if (!found) continue;
    const [, sign, path, first, second, why] = found;
    const row = rows.get(path) || { path, applied: "" };
    row.observed = sign === "+" ? "" : first;
    row.declared = sign === "-" ? "" : sign === "+" ? first : second;
    row.why = why || "differs";
    rows.set(path, row);
  }
  if (absent) for (const row of rows.values()) Object.assign(row, { observed: "", why: "not there" });
  return [...rows.values()].sort((a, b) => !a.why - !b.why || (a.path < b.path ? -1 : 1));
}

function Sides({ object }) {
  const rows = useMemo(() => sidesOf(object), [object]);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Fields"><table class="sides">
    <thead><tr><th scope="col">Field</th><th scope="col">Declared</th><th scope="col">Last applied</th><th scope="col">Observed</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.path} class=${row.why ? "differs" : ""}><th scope="row">${row.path}${row.why && html`<span class="hint"> ${row.why}</span>`}</th><td><code>${row.declared}</code></td><td><code>${row.applied}</code></td><td><code>${row.observed || (row.why ? "(nothing)" : "")}</code></td></tr>`)}</tbody>
  </table></div>`;
}

// The chain of the last decision: the same as `homeostat explain` prints.
function Explained({ chain }) {
  const holds = chain.guards.filter((one) => one.holds);
  const lines = [
    ["declared", chain.declared],
    ["observed", chain.observed],
    ["cause", chain.cause],
    ["decision", chain.decision],
    ...chain.halts.map((halt) => [`halt`, `${halt.guard}: ${halt.reason}`]),
    ["next", chain.next],
  ].filter(([, words]) => words);
  return html`<dl class="chain">${lines.map(([name, words]) => html`<dt>${name}</dt><dd>${words}</dd>`)}
      <dt>guards</dt><dd>${chain.policies.map((name) => html`<${Link} to=${pathTo("guards", name)}>${name}<//> `)}
        ${chain.guards.length ? (holds.length ? html`<ul>${holds.map((one) => html`<li><strong>${one.guard}</strong> holds it: ${one.holds}</li>`)}</ul>` : "all let it through") : `mode ${chain.mode}; nothing to judge`}</dd>
    </dl>`;
}

function Conditions({ object }) {
  return html`<ul class="conditions">${(object.status?.conditions || []).map(
    (one) => html`<li key=${one.type}><strong>${one.type}</strong> ${one.status} <span class="hint">${one.reason}, <${Ago} time=${one.lastTransitionTime} /></span>${one.message && html`<p>${one.message}</p>`}</li>`,
  )}</ul>`;
}

const KSTATUS = { Current: "converged", InProgress: "progressing", Failed: "degraded", Terminating: "progressing" };

function Family({ root }) {
  const box = useRef(null);
  const graph = useRef(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let gone = false;
    import("../graph.js").then(
      ({ draw }) => {
        if (!gone) graph.current = draw(box.current, root, graph.current);
      },
      (error) => setProblem(error.message),
    );
    return () => (gone = true);
  }, [root]);
  useEffect(() => () => graph.current?.destroy(), []);
  return html`<div class="graph" ref=${box} aria-hidden="true"></div><${Problem}>${problem}<//><${Branch} node=${root} />`;
}

// The same as a list: for those who cannot see the graph, or would rather click.
function Branch({ node }) {
  const kept = KSTATUS[node.status] || "unknown";
  return html`<ul class="branch"><li><${Standing} is=${kept}>${node.kind}<//> <${Link} to=${resourcePath(node.resource, node.namespace, node.name)}>${node.name}<//> ${node.message && html`<span class="hint">${node.message}</span>`}
    ${node.children.map((child) => html`<${Branch} key=${child.uid} node=${child} />`)}</li></ul>`;
}

// Everything that happened: writes and what the loop said (from the object's history), and events, newest first.
function Timeline({ kind, namespace, name, object, uid }) {
  const [events, setEvents] = useState(new Map());
  const [past, setPast] = useState([]);
  const [problem, setProblem] = useState("");
  useTopics({ events: { topic: "events", uid, namespace } }, (_, words) => {
    if (words.error) return setProblem(words.error);
    setEvents((last) => new Map([...(words.whole ? [] : last), ...words.events.map((event) => [event.id, event])]));
  });
  useEffect(() => {
    let here = true;
    get(`${objectPath(kind, namespace, name)}?history=50`).then(
      (found) => here && setPast(found.items || []),
      (error) => here && error.code !== 404 && setProblem(error.message),
    );
    return () => (here = false);
  }, [object.metadata.resourceVersion]);
  const lines = [
    ...past.map((one) => ({ key: `r${one.revision}`, at: one.time, what: describe(one), who: one.user || one.manager || "", set: one.changeSet, loop: one.change === "status" })),
    ...[...events.values()].map((one) => ({ key: one.id, at: one.at, what: `${one.reason}: ${one.message}`, who: one.by, warning: one.type === "Warning" })),
  ].sort((a, b) => (a.at < b.at ? 1 : -1));
  return html`<${Problem}>${problem}<//><ol class="timeline">${lines.map(
    (line) => html`<li key=${line.key} class=${line.warning ? "warning" : line.loop ? "loop" : ""}><${Ago} time=${line.at} /> <span>${line.what}</span> <span class="hint">${line.who}${line.set ? html` · <${Link} to=${pathTo("changesets", line.set)}>${line.set}<//>` : ""}</span></li>`,
  )}</ol>`;
}

function describe(one) {
  const fields = (one.fields || []).slice(0, 4).join(", ") + (one.fields?.length > 4 ? "…" : "");
  if (one.change === "created") return "declared";
  if (one.change === "deleted") return "deleted";
  if (one.change === "status") {
    const ready = (one.object?.status?.conditions || []).find((condition) => condition.type === "Ready");
    return ready ? `${ready.reason}: ${ready.message}` : `said: ${fields}`;
  }
  return `changed ${fields}`;
}
