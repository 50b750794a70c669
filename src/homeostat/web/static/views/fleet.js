// Within five seconds: what drifts, what the loop does about it, what it refuses and why. And the big switch.
import { html, useEffect, useRef, useState } from "../lib.js";
import { useTopics } from "../live.js";
import { Bar, Command, Problem, Spark, Standing } from "../parts.js";
import { Link, pathTo } from "../router.js";
import { may } from "../session.js";
import { Freezing, closingFreezes, frozenWords, standingFreezes } from "../steering.js";
import { Ago, number, seconds } from "../words.js";

export function Fleet() {
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState("");
  const series = useRef({});
  useTopics({ fleet: { topic: "fleet" } }, (_, words) => {
    if (words.error) return setProblem(words.error);
    if (words.whole) series.current = {};
    for (const [name, part] of Object.entries(words.series)) {
      const known = (series.current[name] ||= { at: [], drifted: [] });
      known.at.push(...part.at);
      known.drifted.push(...part.drifted);
    }
    setProblem("");
    setSeen(words);
  });
  if (problem) return html`<main><${Problem}>${problem}<//></main>`;
  if (!seen) return html`<main><p class="loading">Loading…</p></main>`;
  const halts = seen.policies.flatMap((policy) => (policy.status.halts || []).map((halt) => ({ policy, halt })));
  return html`<main>
    <${Summary} kinds=${seen.kinds} reading=${seen.reading} policies=${seen.policies} />
    <${Unkept} kinds=${seen.kinds.filter((kind) => kind.unkeptSince && Object.values(kind.counts).some(Boolean))} />
    ${halts.length > 0 && html`<section aria-labelledby="halts"><h2 id="halts">Halted</h2>${halts.map(({ policy, halt }) => html`<${Halt} key=${policy.name + halt.plan + halt.guard} policy=${policy} halt=${halt} />`)}</section>`}
    <section aria-labelledby="kinds"><h2 id="kinds">Kinds</h2>
      ${seen.kinds.length ? html`<div class="tiles">${seen.kinds.map((kind) => html`<${Tile} key=${kind.name} kind=${kind} reading=${seen.reading} policies=${policiesOf(kind, seen.policies)} series=${series.current[kind.name]} />`)}</div>` : html`<${Nothing} />`}
    </section>
  </main>`;
}

// Where no loop looks any more, what is green was green then.
function Unkept({ kinds }) {
  if (!kinds.length) return "";
  const since = kinds.map((kind) => kind.unkeptSince).sort().at(-1);
  return html`<${Problem}>No loop has kept ${kinds.map((kind) => kind.name).join(", ")} for <${Ago} time=${since} bare />: what you see of that is from before, and nothing is done. <code>homeostat doctor</code> looks for what is wrong.<//>`;
}

function Nothing() {
  return html`<div class="empty">
    <p>The loop keeps nothing yet. Let it keep files, say, and declare one:</p>
    <p><${Command}>homeostat up --allow file:/tmp/example --enforce<//></p>
    <p class="hint">The guide <em>Write your first provider</em> shows how to keep what is yours.</p>
  </div>`;
}

// The policies that guard a kind: those that name it, else the one that is built in for it.
function policiesOf(kind, policies) {
  const named = policies.filter((policy) => !policy.builtIn && (policy.spec.fleet?.kinds || []).includes(kind.name));
  return named.length ? named : policies.filter((policy) => policy.builtIn && policy.name === kind.name);
}

function Summary({ kinds, reading, policies }) {
  const total = (name) => kinds.reduce((sum, kind) => sum + (kind.counts[name] || 0), 0);
  const frozen = policies.filter((policy) => closingFreezes(policy).length).length;
  const figures = [
    ["converged", total("converged")],
    ["progressing", total("progressing")],
    ["held", total("held")],
    ["degraded", total("degraded")],
    ["unknown", total("unknown")],
  ];
  return html`<header class="summary">
    <dl class="figures">
      ${figures.map(([name, count]) => html`<div class=${count && name !== "converged" ? `figure ${name}` : "figure"}><dt><${Standing} is=${name} /></dt><dd>${reading ? "…" : number(count)}</dd></div>`)}
      ${policies.length > 0 && html`<div class=${frozen ? "figure frozen" : "figure"}><dt><${Standing} is="frozen">frozen policies<//></dt><dd>${number(frozen)}</dd></div>`}
    </dl>
    <${FreezeAll} policies=${policies} />
  </header>`;
}

function FreezeAll({ policies }) {
  const [asking, setAsking] = useState(false);
  const [allowed, setAllowed] = useState(false);
  useEffect(() => void may("patch", "homeostat.dev", "guardpolicies").then(setAllowed), []);
  const frozen = policies.filter((policy) => closingFreezes(policy).length);
  if (!allowed || !policies.length) return "";
  const all = frozen.length === policies.length;
  return html`<div class="switch">
    <button type="button" class=${all ? "thaw" : "freeze"} onClick=${() => setAsking(true)}>${all ? "Unfreeze…" : "Freeze everything…"}</button>
    <p class="hint">${all ? "Nothing is done; looking goes on." : "Stops all acting at once. Looking goes on."}</p>
    ${asking && html`<${Freezing} policies=${policies} thaw=${all} onClose=${() => setAsking(false)} />`}
  </div>`;
}

function Halt({ policy, halt }) {
  return html`<article class="halt">
    <h3><${Standing} is="held">${halt.guard}<//> <${Link} to=${pathTo("guards", policy.name)}>${policy.name}<//> <${Ago} time=${halt.since} /></h3>
    <p>${halt.reason}</p>
    ${halt.whatToDo && html`<p class="hint">${halt.whatToDo}</p>`}
    <p><${Link} to=${pathTo("guards", policy.name)} class="button">See the plan and decide<//></p>
  </article>`;
}

function Tile({ kind, reading, policies, series }) {
  const closed = policies.flatMap((policy) => closingFreezes(policy).map((freeze) => frozenWords(policy, freeze)));
  const some = policies.flatMap((policy) => standingFreezes(policy).map((freeze) => frozenWords(policy, freeze)));
  const mode = !policies.length ? "" : policies.every((policy) => policy.spec.mode === "Enforce") ? "acts" : "observes";
  const busy = policies.flatMap((policy) => policy.status.waves || []);
  return html`<article class="tile">
    <h3><${Link} to=${pathTo("kinds", kind.name)}>${kind.kind}<//></h3>
    <p class="sub">${kind.name}${(closed.length > 0 || mode) && " · "}${closed.length ? html`<${Standing} is="frozen">${closed[0]}<//>` : mode}</p>
    ${!closed.length && some.length > 0 && html`<p class="sub"><${Standing} is="frozen">${some[0]}<//>${some.length > 1 ? ` and ${some.length - 1} more` : ""}</p>`}
    <${Bar} counts=${kind.counts} label=${kind.kind} />
    ${reading && html`<p class="hint">reading…</p>`}
    <p class="counts">${["degraded", "held", "unknown", "progressing", "converged"].filter((name) => kind.counts[name]).map((name) => html`<${Link} to=${`${pathTo("kinds", kind.name)}?standing=${name}`}><${Standing} is=${name}>${number(kind.counts[name])} ${name}<//><//> `)}</p>
    ${series && series.at.length > 1 && html`<div class="trend"><${Spark} at=${series.at} values=${series.drifted} label="drift" /><span class="hint">drift, since <${Ago} time=${new Date(1000 * series.at[0]).toISOString()} /></span></div>`}
    <${Pace} queue=${kind.queue} took=${kind.convergence} />
    ${busy.slice(0, 3).map((wave) => html`<p class="hint">wave ${wave.number} of ${wave.changeSet || "repairs"}: ${wave.verified} of ${wave.members} verified${wave.failed ? `, ${wave.failed} failed` : ""}</p>`)}
  </article>`;
}

// What waits to be done, and how long it takes until all is well again.
function Pace({ queue, took }) {
  const words = took && (took.half < took.most ? `converges within ${seconds(took.half)} mostly, ${seconds(took.most)} at 95 %` : `converges within ${seconds(took.most)}`);
  if (!queue.open && !words) return "";
  return html`<p class="hint">${queue.open > 0 && html`<strong>${number(queue.open)} in the queue</strong>, the oldest since <${Ago} time=${queue.oldest} />${words ? " · " : ""}`}${words}</p>`;
}
