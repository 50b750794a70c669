// Every policy: what it guards, in which mode, what it refuses now.
import { html, useState } from "../lib.js";
import { useTopics } from "../live.js";
import { Problem, Standing } from "../parts.js";
import { Link, pathTo } from "../router.js";
import { closingFreezes, frozenWords, standingFreezes } from "../steering.js";
import { number } from "../words.js";

export function Guards() {
  const [policies, setPolicies] = useState(null);
  const [problem, setProblem] = useState("");
  useTopics({ fleet: { topic: "fleet" } }, (_, words) => (words.error ? setProblem(words.error) : setPolicies(words.policies)));
  return html`<main>
    <header class="title"><h1>Guards</h1><p>what keeps the loop from doing harm</p></header>
    <${Problem}>${problem}<//>
    ${policies === null ? html`<p class="loading">Loading…</p>` : policies.length ? html`<${Table} policies=${policies} />` : html`<p class="empty">No policy can be seen: no loop has run here yet, or you may not list guardpolicies.</p>`}
  </main>`;
}

function Table({ policies }) {
  return html`<div class="scroll all" tabindex="0" role="region" aria-label="Policies"><table class="plain policies">
    <thead><tr><th scope="col">Policy</th><th scope="col">Gate</th><th scope="col">Fleet</th><th scope="col">Differ</th><th scope="col">Unknown</th><th scope="col">Cap</th><th scope="col">Mass drift</th><th scope="col">Waves</th></tr></thead>
    <tbody>${policies.map(({ name, builtIn, spec, status }) => html`<tr key=${name}>
      <th scope="row"><${Link} to=${pathTo("guards", name)}>${name}<//>${builtIn ? html` <span class="hint">built in</span>` : ""}</th>
      <td><${Gate} spec=${spec} status=${status} /></td>
      <td>${number(status.fleetSize)}</td><td>${number(status.drifted)}</td><td>${number(status.unknown)}</td>
      <td>${spec.cap}</td><td>${spec.massDrift?.limit} of ≥ ${spec.massDrift?.fleetOf}</td>
      <td>${(status.waves || []).map((wave) => html`<div>${wave.verified}/${wave.members} of wave ${wave.number}</div>`)}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

// Whether anything can pass now, in one word.
export function Gate({ spec, status }) {
  const [frozen] = closingFreezes({ spec });
  const some = standingFreezes({ spec }).map((freeze) => html`<${Standing} is="frozen">${frozenWords({ spec }, freeze)}<//>`);
  if (status.halts?.length) return html`<${Standing} is="held">halted by ${status.halted}<//> ${some}`;
  if (frozen) return html`<${Standing} is="frozen">${frozenWords({ spec }, frozen)}<//>`;
  return html`${spec.mode === "Enforce" ? html`<${Standing} is="converged">acts<//>` : html`<${Standing} is="unknown">observes<//>`} ${some}`;
}
