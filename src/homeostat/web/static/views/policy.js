// One policy: how near its fleets are to its limits, the plan that it holds, and the yes that lets exactly this plan through.
import { html, useEffect, useState } from "../lib.js";
import { useTopics } from "../live.js";
import { Dialog, Problem, Standing, useDoing } from "../parts.js";
import { Lines } from "../plan.js";
import { may, post } from "../session.js";
import { Freezing, Turning, closingFreezes, standingFreezes } from "../steering.js";
import { many, number } from "../words.js";
import { Gate } from "./guards.js";
import { WhatIf } from "./whatif.js";

const API = "/apis/homeostat.dev/v1alpha1";

export function Policy({ name }) {
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState("");
  useTopics({ guards: { topic: "guards", policy: name } }, (_, words) => {
    if (words.error) return setProblem(words.error);
    setProblem("");
    setSeen(words);
  });
  if (problem) return html`<main><${Problem}>${problem}<//></main>`;
  if (!seen) return html`<main><p class="loading">Loading…</p></main>`;
  if (!seen.policy) return html`<main><p class="empty">There is no policy ${name}.</p></main>`;
  const { policy, fleets } = seen;
  return html`<main>
    <header class="title"><h1>${name}</h1><p>GuardPolicy</p><div class="now"><${Gate} spec=${policy.spec} status=${policy.status || {}} /><${Steer} policy=${policy} /></div></header>
    ${fleets.map((fleet) => html`<${Guarded} key=${fleet.fleet} fleet=${fleet} />`)}
    ${!fleets.length && html`<p class="empty">It guards nothing now: nothing that it selects is declared, or you may not see it.</p>`}
    <${WhatIf} key=${name} policy=${policy} />
    <section class="panel"><h2>The policy</h2><details><summary>spec</summary><pre tabindex="0">${JSON.stringify(policy.spec, null, 2)}</pre></details></section>
  </main>`;
}

function Steer({ policy }) {
  const [allowed, setAllowed] = useState(false);
  const [asking, setAsking] = useState("");
  useEffect(() => void may("patch", "homeostat.dev", "guardpolicies").then(setAllowed), []);
  if (!allowed) return "";
  const shown = { name: policy.metadata.name, resourceVersion: policy.metadata.resourceVersion, spec: policy.spec };
  const closed = closingFreezes(shown).length > 0;
  const frozen = standingFreezes(shown).length > 0;
  const acts = policy.spec.mode === "Enforce";
  const close = () => setAsking("");
  return html`<span class="steer">
    ${!closed && html`<button type="button" class="freeze" onClick=${() => setAsking("freeze")}>Freeze…</button>`}
    ${frozen && html`<button type="button" class="thaw" onClick=${() => setAsking("thaw")}>Unfreeze…</button>`}
    <button type="button" onClick=${() => setAsking("mode")}>${acts ? "Only observe…" : "Let it act…"}</button>
    ${(asking === "freeze" || asking === "thaw") && html`<${Freezing} policies=${[shown]} thaw=${asking === "thaw"} onClose=${close} />`}
    ${asking === "mode" && html`<${Turning} policy=${shown} acts=${acts} onClose=${close} />`}
  </span>`;
}

function Guarded({ fleet }) {
  return html`<section class="panel guarded" aria-label=${fleet.fleet}>
    <h2>${fleet.fleet} <span class="hint">${many(fleet.size, "resource")}, ${many(fleet.open, "difference")}</span></h2>
    <div class="gauges">${fleet.limits.map((one) => html`<${Gauge} key=${one.guard} limit=${one} />`)}</div>
    ${fleet.halts.map((halt) => html`<${Halted} key=${halt.plan + halt.guard} halt=${halt} />`)}
    ${fleet.runbook.length > 0 && html`<details open><summary>Runbook</summary><pre tabindex="0">${fleet.runbook.join("\n")}</pre></details>`}
    ${fleet.open > 0 && html`<h3>Open</h3><${Lines} drifts=${fleet.drifts} total=${fleet.open} />`}
  </section>`;
}

// How near it is to tripping: it does on more than the limit.
function Gauge({ limit }) {
  const part = limit.limit ? Math.min(1, limit.now / (limit.limit + 1)) : limit.now ? 1 : 0;
  const trips = limit.watches && limit.now > limit.limit;
  return html`<div class=${`gauge ${trips ? "trips" : ""}`}>
    <span>${limit.guard}</span>
    <meter min="0" max="1" low="0.5" high="0.99" optimum="0" value=${limit.watches ? part : 0} aria-label=${limit.guard}>${number(limit.now)}</meter>
    <span class="hint">${limit.watches ? `${number(limit.now)} of ${number(limit.limit)} (${limit.said})${trips ? ": trips" : ""}` : "does not watch a fleet this small"}</span>
  </div>`;
}

export function Halted({ halt }) {
  const [allowed, setAllowed] = useState(false);
  const [asking, setAsking] = useState(false);
  useEffect(() => void may("create", "homeostat.dev", "approvals").then(setAllowed), []);
  return html`<article class="halt">
    <h3><${Standing} is="held">halted by ${halt.guard}<//></h3>
    <p>${halt.reason}</p>
    ${halt.whatToDo && html`<p class="hint">${halt.whatToDo}</p>`}
    ${allowed && halt.plan && html`<button type="button" onClick=${() => setAsking(true)}>See exactly what would be done…</button>`}
    ${asking && html`<${Approving} halt=${halt} onClose=${() => setAsking(false)} />`}
  </article>`;
}

// The exact plan first; the yes is for nothing else, and good once.
function Approving({ halt, onClose }) {
  const [reason, setReason] = useState("");
  const doing = useDoing();
  const approve = async (event) => {
    event.preventDefault();
    const body = { apiVersion: "homeostat.dev/v1alpha1", kind: "Approval", metadata: { generateName: `${halt.plan}-` }, spec: { plan: halt.plan, reason } };
    if (await doing.run(() => post(`${API}/approvals`, body))) onClose();
  };
  const count = (op) => halt.actions.filter((one) => one.op === op).length;
  return html`<${Dialog} title=${`Plan ${halt.plan}`} onClose=${onClose}>
    ${halt.actions.length
      ? html`<p><strong>${count("create")} to add, ${count("update")} to change, ${count("delete")} to destroy.</strong> If anything moves, this approval is worth nothing.</p>
          <div class="scroll"><${Lines} drifts=${halt.actions} total=${halt.actions.length} /></div>
          <form onSubmit=${approve}>
            <label>Reason<input required value=${reason} onInput=${(event) => setReason(event.target.value)} placeholder="why this is meant" /></label>
            <${Problem}>${doing.error}<//>
            <div class="buttons"><button type="button" class="quiet" onClick=${onClose}>Cancel</button><button class="danger" disabled=${doing.busy}>Approve exactly this</button></div>
          </form>`
      : html`<p>This plan is no longer open: what it was made from has moved.</p><div class="buttons"><button type="button" onClick=${onClose}>Close</button></div>`}
  <//>`;
}
