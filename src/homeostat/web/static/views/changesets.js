// What a commit or an apply changed, how far it is, where it stopped and why; and what a yes would touch, before it is said.
import { html, useEffect, useState } from "../lib.js";
import { kindNamed } from "../kinds.js";
import { useTopics } from "../live.js";
import { Bar, Command, Problem, STANDINGS, Standing } from "../parts.js";
import { Lines, SIGNS } from "../plan.js";
import { Link, go, pathTo, resourcePath, setQuery, useRoute } from "../router.js";
import { may } from "../session.js";
import { Ago, many, number } from "../words.js";
import { Returning } from "./history.js";
import { Halted } from "./policy.js";

export function ChangeSets() {
  const { query } = useRoute();
  const [sets, setSets] = useState(null);
  const [problem, setProblem] = useState("");
  useTopics({ sets: { topic: "changesets" } }, (_, words) => (words.error ? setProblem(words.error) : setSets(words.sets)));
  const wanted = (query.get("q") || "").trim();
  const shown = (sets || []).filter((one) => one.name.toLowerCase().includes(wanted.toLowerCase()));
  const open = (event) => {
    event.preventDefault();
    if (wanted) go(pathTo("changesets", shown.length === 1 ? shown[0].name : wanted));
  };
  return html`<main>
    <header class="title"><h1>Change sets</h1><p>what a commit or an apply changed</p></header>
    <form class="filters" role="search" onSubmit=${open}>
      <input type="search" aria-label="Find a change set by its name" placeholder="Filter by name; Enter opens it, also one of which nothing stands any more" value=${query.get("q") || ""} onInput=${(event) => setQuery({ q: event.target.value })} />
    </form>
    <${Problem}>${problem}<//>
    ${sets === null ? (problem ? "" : html`<p class="loading">Loading…</p>`) : shown.length ? html`<${Table} sets=${shown} />` : sets.length ? html`<p class="empty">No change set that still stands has such a name.</p>` : html`<${Nothing} />`}
  </main>`;
}

function Nothing() {
  return html`<div class="empty"><p>Nothing was declared with a change set yet. This names all that it writes as one:</p>
    <p><${Command}>homeostat apply -f FILE<//></p><p class="hint">A Sync names what it writes after the commit.</p></div>`;
}

function Table({ sets }) {
  return html`<div class="scroll all" tabindex="0" role="region" aria-label="Change sets"><table class="plain">
    <thead><tr><th scope="col">Change set</th><th scope="col">Objects</th><th scope="col">How they stand</th><th scope="col">Waves</th><th scope="col">Last moved</th></tr></thead>
    <tbody>${sets.map((one) => html`<tr key=${one.name}>
      <th scope="row"><${Link} to=${pathTo("changesets", one.name)}>${one.name}<//>${one.halts.map((halt) => html`<div><${Standing} is="held">halted by ${halt.guard}<//></div>`)}</th>
      <td>${Object.entries(one.kinds).map(([kind, count]) => `${number(count)} ${kind}`).join(", ") || many(one.objects, "object")}</td>
      <td class="how">${Object.keys(one.kinds).length ? html`<${Bar} counts=${one.counts} label=${one.name} /><${Counts} counts=${one.counts} />${one.why && html`<p class="hint">${one.why}</p>`}` : html`<span class="hint">declared otherwise since</span>`}</td>
      <td>${one.waves.map((wave) => html`<div>wave ${wave.number}: ${number(wave.verified)} of ${number(wave.members)} verified${wave.failed ? `, ${number(wave.failed)} failed` : ""}</div>`)}</td>
      <td><${Ago} time=${one.moved} /></td>
    </tr>`)}</tbody>
  </table></div>`;
}

const Counts = ({ counts }) => html`<p class="counts">${STANDINGS.filter((name) => counts[name]).map((name) => html`<${Standing} is=${name}>${number(counts[name])} ${name}<//> `)}</p>`;

export function ChangeSet({ name }) {
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState("");
  useTopics({ set: { topic: "changeset", name } }, (_, words) => {
    if (words.error) return setProblem(words.error);
    setProblem("");
    setSeen(words);
  });
  if (problem) return html`<main><${Problem}>${problem}<//></main>`;
  if (!seen) return html`<main><p class="loading">Loading…</p></main>`;
  const known = seen.total > 0 || seen.fleets.length > 0;
  return html`<main>
    <header class="title"><h1>${name}</h1><p>change set, ${many(seen.total, "object")}${seen.items[0]?.time ? html`, <${Ago} time=${seen.items[0].time} />` : ""}</p>
      <div class="now"><${Counts} counts=${seen.counts} />${known && html`<${Undo} name=${name} items=${seen.items} />`}</div></header>
    ${seen.problem && html`<p class="problem">Not all of it can be shown: ${seen.problem}</p>`}
    ${!known && html`<p class="empty">Nothing is known of it: it never was, or all that it did is past keeping.</p>`}
    ${seen.fleets.map((fleet) => html`<${Reach} key=${fleet.fleet} fleet=${fleet} />`)}
    ${known && html`<section class="panel" aria-labelledby="waves"><h2 id="waves">Waves</h2><${Waves} waves=${seen.waves} open=${seen.fleets.length} /></section>`}
    ${known && html`<section class="panel" aria-labelledby="changed"><h2 id="changed">What it changed</h2><${Changes} items=${seen.items} total=${seen.total} /></section>`}
  </main>`;
}

// How far a yes reaches: how much of how many, and what the guards make of it.
function Reach({ fleet }) {
  const { counts, verdict } = fleet;
  const share = fleet.size ? (100 * fleet.open) / fleet.size : 0;
  const part = share > 99 && share < 100 ? 99 : Math.round(share); // what is not all is not told as all
  const goes = [verdict.now && `${number(verdict.now)} at once`, verdict.later && `${number(verdict.later)} in waves behind, each when the one before is verified`].filter(Boolean);
  const halting = new Set(fleet.halts.map((halt) => halt.guard));
  return html`<section class="panel guarded" aria-label=${`Still open in ${fleet.fleet}`}>
    <h2>Still open in ${fleet.fleet}</h2>
    <p><strong>${number(counts.create)} to add, ${number(counts.update)} to change, ${number(counts.delete)} to destroy</strong>: ${number(fleet.open)} of ${many(fleet.size, "resource")} (${part} %). ${goes.length ? `Of all that is open here, the guards let ${goes.join("; ")}.` : ""} ${verdict.mode === "Observe" ? "The policy only observes: nothing is done." : ""}</p>
    <p class="hint">Guarded by ${fleet.policies.map((name) => html`<${Link} to=${pathTo("guards", name)}>${name}<//> `)}</p>
    ${fleet.halts.map((halt) => html`<${Halted} key=${halt.plan + halt.guard} halt=${halt} />`)}
    ${verdict.held.filter((one) => !halting.has(one.guard)).map((one) => html`<p key=${one.guard}><${Standing} is="held">${one.guard} holds ${number(one.count)}<//> ${one.reason}</p>`)}
    <details><summary>${many(fleet.open, "difference")}</summary><${Lines} drifts=${fleet.drifts} total=${fleet.open} /></details>
  </section>`;
}

// Waves under way, and those that are over: a policy keeps what it did last, over restarts.
function Waves({ waves, open }) {
  if (!waves.length) return html`<p class="hint">${open ? "None has begun." : "None is known: what is only made new goes in no waves, and of long ago none is kept."}</p>`;
  return html`<ol class="waves">${waves.map((wave) => {
    const failed = wave.failed ? `, ${number(wave.failed)} failed` : "";
    const words = wave.over ? `${many(wave.members, "object")}, over${failed}` : `${number(wave.verified)} of ${number(wave.members)} verified${failed}`;
    const is = wave.failed ? "degraded" : wave.over ? "converged" : "progressing";
    return html`<li key=${`${wave.fleet}${wave.number}${wave.started}`}><${Standing} is=${is}>wave ${wave.number}<//> ${!wave.over && html`<progress max=${wave.members || 1} value=${wave.verified} aria-label=${`wave ${wave.number}: ${words}`}></progress>`} <span>${words}</span> <span class="hint">${wave.fleet}, begun <${Ago} time=${wave.started} /></span></li>`;
  })}</ol>`;
}

function Changes({ items, total }) {
  return html`<ul class="plan">${items.map((one) => html`<li key=${`${one.apiVersion}/${one.kind}/${one.namespace}/${one.name}`} class=${one.op}>
    <span class="sign" role="img" aria-label=${one.op || "part of it"}>${SIGNS[one.op] || "·"}</span> ${one.resource ? html`<${Link} to=${resourcePath(one.resource, one.namespace, one.name)}>${one.kind} ${one.namespace ? `${one.namespace}/` : ""}${one.name}<//>` : `${one.kind} ${one.name}`}
    ${one.changedSince ? html`<span class="hint">declared otherwise since</span>` : one.standing && html` <${Standing} is=${one.standing} /><span class="hint">${one.standing === "held" ? "" : one.message}</span>`}
    ${one.changes.length > 0 && html`<pre tabindex="0">${one.changes.join("\n")}</pre>`}
  </li>`)}</ul>${total > items.length && html`<p class="hint">and ${number(total - items.length)} more: <code>homeostat history --change-set NAME</code> lists them all</p>`}`;
}

function Undo({ name, items }) {
  const [allowed, setAllowed] = useState(false);
  const [asking, setAsking] = useState(false);
  const kinds = [...new Set(items.map((one) => `${one.resource}|${one.namespace}`))].sort().join(",");
  useEffect(() => {
    let here = true;
    mayAll(items).then((yes) => here && setAllowed(yes));
    return () => (here = false);
  }, [kinds]);
  if (!allowed) return "";
  if (items.some((one) => one.changedSince)) return html`<span class="hint">Some of it was declared otherwise since: roll the others back one by one.</span>`;
  return html`<span class="steer"><button type="button" onClick=${() => setAsking(true)}>Roll back all of it…</button>
    ${asking && html`<${Returning} title=${`Roll back ${name}`} asked=${{ changeSet: name }} onClose=${() => setAsking(false)} />`}</span>`;
}

// Offered to who may write everything that it touched; a revision of 0 says that nothing of what it did may be read.
async function mayAll(items) {
  if (!items.length || items.some((one) => !one.resource || !one.revision)) return false;
  const places = new Map(items.map((one) => [`${one.resource}|${one.namespace}`, one]));
  const answers = await Promise.all([...places.values()].map(async (one) => {
    const kind = await kindNamed(one.resource);
    return Boolean(kind) && may("update", kind.group, kind.plural, one.namespace);
  }));
  return answers.every(Boolean);
}
