// Every declaration of a resource that is kept: what was declared otherwise, by whom; and the way back, as a plan first.
import { html, useEffect, useState } from "../lib.js";
import { objectPath } from "../kinds.js";
import { Dialog, Problem, Standing, useDoing } from "../parts.js";
import { Link, go, pathTo } from "../router.js";
import { get, may, post } from "../session.js";
import { Ago, many, number } from "../words.js";
import { SIGNS } from "../plan.js";

const CHANGES = { created: "declared first", deleted: "deleted", known: "was so when what is known begins" };

export function History({ kind, namespace, name, version }) {
  const [past, setPast] = useState(null);
  const [problem, setProblem] = useState("");
  const [picked, setPicked] = useState([null, null]);
  const [returning, setReturning] = useState(null);
  const [allowed, setAllowed] = useState(false);
  const where = { apiVersion: kind.apiVersion, kind: kind.kind, namespace, name };
  useEffect(() => {
    let here = true;
    get(`${objectPath(kind, namespace, name)}?history=100&declared=true`).then(
      (found) => here && setPast(found.items || []),
      (error) => here && (error.code === 404 ? setPast([]) : setProblem(error.message)),
    );
    return () => (here = false);
  }, [version]);
  const gone = past?.length > 0 && !past[0].object;
  useEffect(() => void may(gone ? "create" : "update", kind.group, kind.plural, namespace).then(setAllowed), [gone]);
  if (!past) return html`<${Problem}>${problem}<//>`;
  if (!past.length) return html`<p class="hint">Nothing is kept of it.</p>`;
  const [from, to] = picked[0] && picked[1] ? picked : [past[1]?.revision, past[0].revision];
  return html`<${Problem}>${problem}<//>
    <div class="scroll" tabindex="0" role="region" aria-label="Declarations"><table class="plain history">
      <thead><tr><th scope="col">Revision</th><th scope="col">When</th><th scope="col">What</th><th scope="col">By</th><th scope="col">Compare</th><th scope="col"><span class="unseen">Roll back</span></th></tr></thead>
      <tbody>${past.map((one, index) => html`<tr key=${one.revision}>
        <th scope="row">${one.revision}</th>
        <td>${one.time ? html`<${Ago} time=${one.time} />` : ""}</td>
        <td>${CHANGES[one.change] || changed(one)}</td>
        <td>${one.manager || ""}${one.changeSet ? html` <${Link} to=${pathTo("changesets", one.changeSet)}>${one.changeSet}<//>` : ""}</td>
        <td class="pick">${[0, 1].map((side) => html`<input type="radio" name=${`side${side}`} aria-label=${`revision ${one.revision} as the ${side ? "new" : "old"} side`} checked=${(side ? to : from) === one.revision} onChange=${() => setPicked(side ? [from, one.revision] : [one.revision, to])} />`)}</td>
        <td>${allowed && index > 0 && one.object && html`<button type="button" onClick=${() => setReturning(one.revision)}>Roll back to this…</button>`}</td>
      </tr>`)}</tbody>
    </table></div>
    ${from && to && from !== to && html`<${Compared} key=${`${from}-${to}`} asked=${{ ...where, since: from, revision: to }} />`}
    ${returning && html`<${Returning} title=${`Roll back ${name} to revision ${returning}`} asked=${{ ...where, revision: returning }} onClose=${() => setReturning(null)} />`}`;
}

function changed(one) {
  const fields = (one.fields || []).filter((path) => !path.startsWith("status") && !path.includes("homeostat.dev/change-set"));
  return `changed ${fields.slice(0, 4).join(", ")}${fields.length > 4 ? "…" : ""}`;
}

function Compared({ asked }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let here = true;
    post("/ui/compare", asked).then((said) => here && setFound(said), (error) => here && setProblem(error.message));
    return () => (here = false);
  }, []);
  return html`<h3>From revision ${asked.since} to ${asked.revision}</h3><${Problem}>${problem}<//>${found && (found.words ? html`<p class="hint">${found.words}</p>` : html`<${Diff} lines=${found.lines} />`)}`;
}

const Diff = ({ lines }) => html`<pre class="diff" tabindex="0">${lines.map((line, index) => html`<span key=${index} class=${{ "+": "added", "-": "removed", "~": "changed" }[line[0]] || ""}>${line}${"\n"}</span>`)}</pre>`;

// The plan first, with what the guards will say; the yes writes exactly this plan, or nothing.
export function Returning({ title, asked, onClose }) {
  const [plan, setPlan] = useState(null);
  const doing = useDoing();
  const look = () => doing.run(() => post("/ui/rollback", asked)).then((found) => found && setPlan(found));
  useEffect(() => void look(), []);
  const write = async () => {
    const done = await doing.run(() => post("/ui/rollback", { ...asked, shown: plan.shown }));
    if (!done) return;
    if (done.failed.length) return doing.run(() => Promise.reject(new Error(done.failed.map((one) => `${one.object}: ${one.error}`).join("; "))));
    onClose();
    go(pathTo("changesets", done.changeSet));
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${plan ? html`<${Planned} plan=${plan} />` : doing.busy && html`<p class="loading">Asking the server what would change…</p>`}
    <${Problem}>${doing.error}<//>
    <div class="buttons"><button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      ${doing.error && html`<button type="button" disabled=${doing.busy} onClick=${look}>Look again</button>`}
      ${plan?.actions.length > 0 && html`<button type="button" class="danger" disabled=${doing.busy} onClick=${write}>Roll back exactly this</button>`}</div>
  <//>`;
}

function Planned({ plan }) {
  if (!plan.actions.length) return html`<p>There is nothing to do: all of it is declared so already.</p>`;
  return html`<p><strong>${number(plan.add)} to add, ${number(plan.change)} to change, ${number(plan.destroy)} to destroy.</strong> It is a change set of its own; the guards judge it like any other.</p>
    <div class="scroll"><ul class="plan">${plan.actions.map((one) => html`<li key=${`${one.kind}/${one.namespace}/${one.name}`} class=${one.op}>
      <span class="sign" aria-label=${one.op}>${SIGNS[one.op]}</span> ${one.kind} ${one.namespace ? `${one.namespace}/` : ""}${one.name}
      ${one.changes.length > 0 && html`<${Diff} lines=${one.changes} />`}</li>`)}</ul></div>
    ${plan.guards.map((verdict) => html`<p key=${verdict.fleet}><${Standing} is=${verdict.held.length || verdict.halts.length ? "held" : "converged"}>${verdict.fleet}<//> (${many(verdict.size, "resource")}, ${verdict.mode}): ${number(verdict.now)} at once${verdict.later ? `, ${number(verdict.later)} in waves behind` : ""}${verdict.held.map((one) => `, ${number(one.count)} held by ${one.guard}: ${one.reason}`).join("")}</p>`)}
    ${plan.guards.some((verdict) => verdict.approvable) && html`<p class="hint">What the guards stop can be approved afterwards, on the page of the new change set.</p>`}`;
}
