// Who has which GPUs and how busy they are, who waits and why, tenants against their quota, what was taken away, what lies idle.
import { Chart, Legend } from "../chart.js";
import { DEGREES, HEALTH, HOLDERS, HeatMap, MEMORY, MEMORY_USED, REASON, USE, WATTS, letterOf } from "../heatmap.js";
import { html, useMemo, useRef, useState } from "../lib.js";
import { useTopics } from "../live.js";
import { Command, Problem, Rows, Standing, TOLD_HEIGHT, useNarrow } from "../parts.js";
import { Link, go, pathTo, setQuery, useRoute } from "../router.js";
import { Ago, ago, many, number } from "../words.js";

const HEATS = [["use", "how busy"], ["tenant", "tenant"], ["health", "health"]];
const LINES = [
  { name: "used", class: "used", colour: "--bar-progressing", dash: "solid", fill: true, step: true },
  { name: "quota", class: "quota", colour: "--held", dash: "dashed", step: true },
  { name: "entitled by weight", class: "entitled", colour: "--unknown", dash: "dotted", step: true },
];
const CHARTS = 6;
const iso = (seconds) => new Date(1000 * seconds).toISOString();
const amount = (value) => (Math.round(1000 * (value ?? 0)) / 1000).toLocaleString();
const workloadPath = (title) => {
  const [namespace, name] = title.split("/");
  return pathTo("gpu", "workloads", namespace, name);
};

export function Gpu() {
  const { query } = useRoute();
  const nodes = useRef(new Map());
  const series = useRef({});
  const [seen, setSeen] = useState(null);
  const [version, setVersion] = useState(0);
  const [problem, setProblem] = useState("");
  useTopics({ gpu: { topic: "gpu" } }, (_, words) => {
    if (words.error) return setProblem(words.error);
    if (words.whole) {
      nodes.current = new Map();
      series.current = {};
    }
    for (const node of words.nodes || []) nodes.current.set(node.name, node);
    for (const name of words.gone || []) nodes.current.delete(name);
    for (const [name, part] of Object.entries(words.series || {})) append(series.current, name, part);
    for (const [name, now] of Object.entries(totals(words.tenants || []))) append(series.current, name, { at: [words.at], used: [now.used], quota: [now.nominal], entitled: [now.entitled] });
    setProblem("");
    setSeen((last) => ({ ...(words.whole ? {} : last), ...words }));
    setVersion((last) => last + 1);
  });
  const fleet = useMemo(() => [...nodes.current.values()].sort((a, b) => (a.name < b.name ? -1 : 1)), [version]);
  if (problem) return html`<main><${Problem}>${problem}<//></main>`;
  if (!seen) return html`<main><p class="loading">Loading…</p></main>`;
  if (seen.missing) return html`<main><p class="empty">${seen.missing}</p></main>`;
  if (seen.absent || (!seen.sees && !seen.problem)) return html`<main><${Nothing} /></main>`;
  if (seen.problem) return html`<main><${Problem}>${seen.problem}<//></main>`;
  const q = (query.get("q") || "").toLowerCase();
  const has = (...texts) => !q || texts.join(" ").toLowerCase().includes(q);
  return html`<main class="gpu">
    <${Figures} seen=${seen} fleet=${fleet} />
    ${(seen.halts || []).map((halt) => html`<article class="halt" key=${halt.plan}><h3><${Standing} is="held">${halt.guard}<//> halts workloads</h3><p>${halt.reason}</p><p><${Link} to="guards" class="button">See the plan and decide<//></p></article>`)}
    ${seen.notes.map((note) => html`<p class="hint note" key=${note}>${note}</p>`)}
    ${!seen.sees.workloads && html`<p class="hint note">You do not see the workloads of all namespaces: those of others are taken, no more (∗).</p>`}
    <div class="filters" role="search"><input type="search" aria-label="Filter by node, tenant or workload" placeholder="Filter by node, tenant or workload" value=${query.get("q") || ""} onInput=${(event) => setQuery({ q: event.target.value })} /></div>
    <${Machines} seen=${seen} fleet=${fleet} query=${query} has=${has} q=${q} />
    <${Tenants} seen=${seen} series=${series.current} has=${has} />
    <${Queue} seen=${seen} has=${has} />
    <div class="columns"><${Taken} seen=${seen} has=${has} /><${Idle} seen=${seen} has=${has} /></div>
  </main>`;
}

// Adds samples to what is known of a tenant. Those of the server come late; what changes is there at once, and what is older than that is known.
function append(series, tenant, part) {
  const known = (series[tenant] ||= { at: [], used: [], quota: [], entitled: [] });
  const from = part.at.findIndex((at) => at > (known.at.at(-1) ?? 0));
  if (from >= 0) for (const name of Object.keys(known)) known[name].push(...part[name].slice(from));
}

// What each tenant uses and has, of all types together.
function totals(rows) {
  const found = {};
  for (const one of rows) {
    const sum = (found[one.tenant] ||= { used: 0, nominal: 0, entitled: one.entitled });
    sum.used += one.used;
    sum.nominal += one.nominal;
  }
  return found;
}

function Nothing() {
  return html`<div class="empty">
    <h1>No GPUs yet</h1>
    <p>This server shares out no GPUs. To see two teams on four simulated machines, stop it and start it so:</p>
    <p><${Command}>homeostat up --demo<//></p>
    <p>To share out your own, let the loop do so, and run an agent on each machine:</p>
    <p><${Command}>homeostat up --allow gpu --enforce<//></p>
    <p><${Command}>homeostat agent --help<//></p>
  </div>`;
}

// At a glance

function Figures({ seen, fleet }) {
  const sums = useMemo(() => sumsOf(fleet), [fleet]);
  const figures = [];
  if (seen.sees.nodes) {
    figures.push(["GPUs", number(sums.total), ""], ["held", number(sums.held), ""], ["free", number(sums.free), ""]);
    figures.push(["failed or lost", number(sums.bad), sums.bad ? "degraded" : ""]);
  }
  figures.push(["waiting", number(seen.waiting), seen.waiting ? "progressing" : ""]);
  figures.push([`preempted this hour, of ${number(seen.preemptions.perHour)} at most`, number(seen.preemptions.lastHour), ""]);
  if (sums.cost) figures.push(["an hour, all nodes", amount(sums.cost), ""], ["of that, for free GPUs", amount(sums.wasted), ""]);
  return html`<header class="summary"><h1 class="hidden">GPUs</h1><dl class="figures">
    ${figures.map(([name, value, how]) => html`<div class=${`figure ${how}`} key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl></header>`;
}

function sumsOf(fleet) {
  const sums = { total: 0, held: 0, free: 0, bad: 0, cost: 0, wasted: 0 };
  for (const node of fleet) {
    sums.cost += node.costPerHour;
    for (const gpu of node.gpus) {
      const bad = gpu[HEALTH] === "Failed" || node.state === "Lost";
      const held = gpu[HOLDERS].length > 0;
      sums.total += 1;
      sums.held += held;
      sums.bad += bad;
      sums.free += !held && !bad;
      if (!held) sums.wasted += node.costPerHour / node.gpus.length;
    }
  }
  return sums;
}

// Nodes × GPUs

function Machines({ seen, fleet, query, has, q }) {
  const by = query.get("by") || "tenant";
  const table = query.get("as") === "table";
  const tenants = useMemo(() => [...new Set([...(seen.tenants || []).map((one) => one.tenant), ...fleet.flatMap((node) => node.gpus.flatMap((gpu) => gpu[HOLDERS].map((one) => one[1])))])].filter(Boolean).sort(), [seen.tenants, fleet]);
  if (!seen.sees.nodes) return html`<section class="panel"><h2>Nodes</h2><p class="hint">You may not see nodes: ask for the right to list gpunodes.gpu.homeostat.dev.</p></section>`;
  const matches = (node, gpu) => !q || has(node.name, node.model, ...node.gpus[gpu][HOLDERS].flatMap((one) => [one[0], one[1]]));
  const pick = (node, gpu) => {
    const title = node.gpus[gpu][HOLDERS][0]?.[0];
    if (title && title !== "*") go(workloadPath(title));
  };
  if (!fleet.length)
    return html`<section class="panel"><h2>Nodes</h2><div class="empty"><p>No node has joined. On a machine with GPUs, or on any with simulated ones:</p><p><${Command}>homeostat agent --simulate 8xH100<//></p></div></section>`;
  return html`<section class="panel machines" aria-labelledby="nodes">
    <div class="head"><h2 id="nodes">${many(fleet.length, "node")}</h2>
      ${!table && html`<label>Colour by <select value=${by} onChange=${(event) => setQuery({ by: event.target.value })}>${HEATS.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select></label>`}
      <button type="button" class=${`chip ${table ? "on" : ""}`} aria-pressed=${table} onClick=${() => setQuery({ as: table ? "" : "table" })}>As a table</button></div>
    ${table
      ? html`<${GpuTable} fleet=${fleet} matches=${matches} />`
      : html`<${HeatMap} nodes=${fleet} by=${by} tenants=${tenants} matches=${matches} describe=${describe} onPick=${pick} label=${`Heat map of ${many(fleet.length, "node")}, by ${by}`} /><${Marks} by=${by} tenants=${tenants} />`}
  </section>`;
}

function Marks({ by, tenants }) {
  const words = { use: "The number, and how full a cell is, is how busy the GPU is, in percent.", health: "! suspect, ? not heard of", tenant: "" }[by];
  return html`<p class="legend">${by === "tenant" && tenants.map((name, at) => html`<span key=${name}><svg width="14" height="14" aria-hidden="true"><rect class=${`hue-${at % 8}`} width="14" height="14" /></svg> ${letterOf(at)} ${name}</span>`)}
    ${words && html`<span>${words}</span>`}${by !== "health" && html`<span>empty: free</span>`}<span>✕ failed</span><span>striped: on its way out, or its node is lost</span></p>`;
}

function holdersOf(gpu) {
  return gpu[HOLDERS].map(([title, tenant, share, leaving]) => `${title === "*" ? "somebody" : title || "processes of nobody known"}${tenant ? ` of ${tenant}` : ""}${share < 1 ? `, ${share} of it` : ""}${leaving ? ", on its way out" : ""}`);
}

function describe(node, at) {
  const gpu = node.gpus[at];
  const state = node.state === "Open" ? "" : ` (${node.state.toLowerCase()})`;
  const health = gpu[HEALTH] === "Healthy" ? "healthy" : `${gpu[HEALTH].toLowerCase()}${gpu[REASON] ? `: ${gpu[REASON]}` : ""}`;
  const use = gpu[USE] === null ? "" : `, ${gpu[USE]} % busy`;
  const power = gpu[WATTS] === null ? "" : `, ${gpu[WATTS]} W`;
  return `${node.name}${state} GPU ${at}, ${node.model}: ${holdersOf(gpu).join(" and ") || "free"}; ${health}${use}${power}`;
}

// The same for those who would rather read, or cannot see the map.
function GpuTable({ fleet, matches }) {
  const rows = [];
  for (const node of fleet) for (let at = 0; at < node.gpus.length; at++) if (matches(node, at)) rows.push([node, at]);
  return html`<div class="short gpus"><${Rows}
    label="GPUs"
    columns=${["Node", "GPU", "Type", "Busy", "Memory", "Power", "Health", "Held by"]}
    rows=${rows}
    keyOf=${([node, at]) => `${node.name} ${at}`}
    empty="No GPU matches this filter."
    row=${([node, at]) => {
      const gpu = node.gpus[at];
      const title = gpu[HOLDERS][0]?.[0];
      const who = holdersOf(gpu).join(", ") || "free";
      return html`<td>${node.name}${node.state === "Open" ? "" : ` (${node.state.toLowerCase()}${node.heard ? ` ${ago(iso(node.heard))}` : ""})`}</td><td>${at}</td><td>${node.model}</td>
        <td>${gpu[USE] === null ? "–" : `${gpu[USE]} %`}</td><td>${gpu[MEMORY_USED] === null ? "–" : `${(gpu[MEMORY_USED] / 1024).toFixed(1)} of ${Math.round(gpu[MEMORY] / 1024)} GiB`}</td>
        <td>${gpu[WATTS] === null ? "–" : `${gpu[WATTS]} W, ${gpu[DEGREES]} °C`}</td><td>${gpu[HEALTH]}${gpu[REASON] ? `: ${gpu[REASON]}` : ""}</td>
        <td title=${who}>${title && title !== "*" ? html`<${Link} to=${workloadPath(title)}>${who}<//>` : who}</td>`;
    }}
  /></div>`;
}

// Tenants

function Tenants({ seen, series, has }) {
  if (!seen.sees.tenants) return html`<section class="panel"><h2>Tenants</h2><p class="hint">You may not see tenants: ask for the right to list tenants.gpu.homeostat.dev.</p></section>`;
  const rows = seen.tenants.filter((one) => has(one.tenant, one.cohort, one.model));
  const now = totals(rows);
  const names = Object.keys(now).filter((name) => series[name]);
  if (!seen.tenants.length)
    return html`<section class="panel"><h2>Tenants</h2><div class="empty"><p>There are no tenants. A Tenant says who may use how many GPUs:</p><p><${Command}>kubectl explain tenant.spec<//></p></div></section>`;
  const most = Math.max(1, ...rows.map((one) => Math.max(one.nominal, one.used)));
  const money = rows.some((one) => one.cost);
  return html`<section class="panel" aria-labelledby="tenants"><h2 id="tenants">Tenants</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Tenants"><table class="plain tenants">
      <thead><tr>${["Tenant", "Type", "Used of quota", "", "Entitled", "Borrowed", "Lent", "Run", "Wait", "Suspended", "GPU hours", ...(money ? ["Cost"] : [])].map((name) => html`<th scope="col">${name || html`<span class="hidden">as a bar</span>`}</th>`)}</tr></thead>
      <tbody>${rows.map((one) => html`<tr key=${`${one.tenant} ${one.model}`}>
        <th scope="row" class="name">${one.tenant}</th><td>${one.model}</td>
        <td class=${one.over ? "over" : ""}>${amount(one.used)} of ${amount(one.nominal)}${one.over ? `, ${amount(one.over)} too many` : ""}</td>
        <td class="wide"><${UseBar} row=${one} most=${most} /></td>
        <td>${amount(one.entitled)}</td><td>${amount(one.borrowed)}</td><td>${amount(one.lent)}</td><td>${number(one.running)}</td><td>${number(one.pending)}</td><td>${number(one.suspended)}</td>
        <td>${amount(one.budget ? one.budget.used : one.gpuHours)}${one.budget ? ` of ${amount(one.budget.gpuHours)}` : ""}</td>${money && html`<td>${amount(one.cost)}</td>`}
      </tr>`)}</tbody>
    </table></div>
    <div class="charts">${names.slice(0, CHARTS).map((name) => html`<${History} key=${name} name=${name} now=${now[name]} at=${seen.at} series=${series[name]} />`)}</div>
    <${Legend} lines=${LINES} />
    ${names.length > CHARTS && html`<p class="hint">Charts of the first ${CHARTS} tenants: filter by name to see others.</p>`}
  </section>`;
}

function UseBar({ row, most }) {
  const scale = 100 / most;
  const own = Math.min(row.used, row.nominal);
  return html`<svg class="bar use" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
    <rect class="own" width=${own * scale} height="6" /><rect class=${row.over ? "over" : "more"} x=${own * scale} width=${(row.used - own) * scale} height="6" />
    <rect class="mark" x=${Math.max(0, row.nominal * scale - 0.6)} width="0.6" height="6" />
  </svg>`;
}

// What was, up to this moment: the last that was heard holds until now.
function History({ name, now, at, series }) {
  const data = useMemo(() => {
    const last = series.at.at(-1);
    const until = Math.max(at, last + 1);
    return [[...series.at, until], [...series.used, now.used], [...series.quota, now.nominal], [...series.entitled, now.entitled]];
  }, [at, series.at.length]);
  return html`<figure><figcaption>${name}</figcaption><${Chart} lines=${LINES} data=${data} label=${`${name} over time: uses ${amount(now.used)} of its ${amount(now.nominal)} GPUs now, is entitled to ${amount(now.entitled)}`} /></figure>`;
}

// The queue

function Queue({ seen, has }) {
  const narrow = useNarrow();
  const rows = seen.queue.filter((one) => has(one.namespace, one.name, one.tenant, one.constraint));
  return html`<section class="panel" aria-labelledby="queue"><h2 id="queue">Queue</h2>
    ${seen.waiting > seen.queue.length && html`<p class="hint">The first ${number(seen.queue.length)} of ${number(seen.waiting)} that wait.</p>`}
    <div class="short queue"><${Rows}
      label="Queue"
      columns=${narrow ? ["Waits", "Workload"] : ["Waits", "Workload", "Tenant", "GPUs", "Likely", "For", "Why"]}
      height=${narrow ? TOLD_HEIGHT : undefined}
      look=${narrow ? "tall told" : ""}
      rows=${rows}
      keyOf=${(one) => `${one.namespace}/${one.name}`}
      empty=${seen.queue.length ? "Nothing matches this filter." : "Nobody waits."}
      row=${(one) => narrow ? html`<td><${Ago} time=${iso(one.since)} bare /><br />${amount(one.gpus)} for ${one.tenant}</td>
        <td><${Link} to=${pathTo("gpu", "workloads", one.namespace, one.name)}>${one.namespace}/${one.name}<//><span class="message">${one.reason}; likely ${likely(one.starts)}</span></td>` : html`<td><${Ago} time=${iso(one.since)} bare /></td>
        <td title=${`${one.namespace}/${one.name}, ${one.phase.toLowerCase()}`}><${Link} to=${pathTo("gpu", "workloads", one.namespace, one.name)}>${one.namespace}/${one.name}<//>${one.phase === "Pending" ? "" : ` (${one.phase.toLowerCase()})`}</td>
        <td>${one.tenant}</td><td>${amount(one.gpus)}</td><td>${likely(one.starts)}</td><td>${one.constraint === "none" ? "–" : one.constraint}</td><td class="message" title=${one.reason}>${one.reason}</td>`}
    /></div>
  </section>`;
}

const likely = (starts) => (starts === null ? "not known" : 1000 * starts <= Date.now() ? "now" : `in ${ago(new Date().toISOString(), 1000 * starts)}`);

// What was taken away, and what lies idle

const DONE = { suspend: "suspended", preempt: "preempted", reclaim: "reclaimed, for it was idle", requeue: "lost its node", migrate: "moved" };

function Taken({ seen, has }) {
  const rows = seen.taken.filter((one) => has(one.workload, one.tenant, one.verb, one.for));
  return html`<section class="panel" aria-labelledby="taken"><h2 id="taken">Taken off GPUs</h2>
    ${!rows.length && html`<p class="hint">${seen.taken.length ? "Nothing matches this filter." : "Nothing was preempted, suspended or reclaimed."}</p>`}
    <ol class="timeline">${rows.slice(0, 100).map((one) => html`<li key=${one.workload} class=${one.phase === "Suspended" ? "warning" : "loop"}><${Ago} time=${one.at} /> <span><${Link} to=${workloadPath(one.workload)}>${one.workload}<//> ${DONE[one.verb]}${one.for ? html` for <${Link} to=${workloadPath(one.for)}>${one.for}<//>` : ""}: ${one.reason}</span> <span class="hint">${one.phase}, ${many(one.times, "time")}</span></li>`)}</ol>
  </section>`;
}

function Idle({ seen, has }) {
  const rows = seen.idle.filter((one) => has(one.workload, one.tenant));
  const empty = (seen.empty || []).filter((one) => has(one.node, one.model));
  const watched = rows.filter((one) => !one.then.startsWith("left alone"));
  const alone = rows.filter((one) => one.then.startsWith("left alone"));
  return html`<section class="panel" aria-labelledby="idle"><h2 id="idle">Idle</h2>
    ${!rows.length && !empty.length && html`<p class="hint">Nothing lies idle.</p>`}
    ${empty.length > 0 && html`<p>${many(empty.length, "node")} with nothing to do: ${empty.slice(0, 8).map((one, at) => html`${at ? ", " : ""}${one.node} (${many(one.gpus, "GPU")}${one.costPerHour ? `, ${amount(one.costPerHour)} an hour` : ""})`)}${empty.length > 8 ? "…" : ""}</p>`}
    ${watched.length > 0 && html`<p>${many(watched.length, "workload")} that use next to nothing of what they hold:</p><${IdleList} rows=${watched} />`}
    ${alone.length > 0 && html`<details><summary>${many(alone.length, "workload")} that use next to nothing, and are left alone</summary><${IdleList} rows=${alone} /></details>`}
  </section>`;
}

function IdleList({ rows }) {
  return html`<ul class="idle">${rows.slice(0, 100).map((one) => html`<li key=${one.workload}><${Link} to=${workloadPath(one.workload)}>${one.workload}<//> of ${one.tenant}, ${amount(one.gpus)} <span class="hint">${one.since ? html`since <${Ago} time=${one.since} />; ` : ""}${one.then}</span></li>`)}</ul>`;
}

// One workload: why it waits, runs or was suspended, and what comes next. The words are those of `homeostat gpu explain`.

export function GpuWorkload({ namespace, name }) {
  const [said, setSaid] = useState(null);
  const [problem, setProblem] = useState("");
  useTopics({ workload: { topic: "gpu-workload", namespace, name } }, (_, words) => {
    setProblem(words.error || words.problem || "");
    if (words.lines) setSaid(words);
    else setSaid(null);
  });
  const chapters = [];
  for (const [about, what] of said?.lines || []) about ? chapters.push([about, [what]]) : chapters.at(-1)?.[1].push(what.trim());
  return html`<main>
    <header class="title"><h1>${name}</h1><p>GPU workload in ${namespace}</p></header>
    <${Problem}>${problem}<//>
    ${!said && !problem && html`<p class="loading">Loading…</p>`}
    ${said && html`<section class="panel" aria-labelledby="story"><h2 id="story">${said.headline}</h2>
      <dl class="chain">${chapters.map(([about, lines]) => html`<dt>${about}</dt><dd>${lines[0]}${lines.length > 1 && html`<ul>${lines.slice(1).map((line) => html`<li>${line}</li>`)}</ul>`}</dd>`)}</dl>
      ${said.notes.map((note) => html`<p class="hint">${note}</p>`)}
      <p><${Link} to=${pathTo("resources", "workloads.gpu.homeostat.dev", namespace, name)}>Declared, observed, timeline<//> · <${Link} to="gpu">All GPUs<//></p>
      <p class="hint">In a terminal: <${Command}>${`homeostat gpu explain ${namespace}/${name}`}<//></p>
    </section>`}
  </main>`;
}
