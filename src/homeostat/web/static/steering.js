// Policies, changed by a person: the freeze, its end, and whether the loop acts. Before something is let go, one sees what would be done.
import { html, useState } from "./lib.js";
import { useTopics } from "./live.js";
import { Dialog, Problem, useDoing } from "./parts.js";
import { Lines } from "./plan.js";
import { current, get, merge } from "./session.js";
import { many } from "./words.js";

const POLICIES = "/apis/homeostat.dev/v1alpha1/guardpolicies";
const TRIES = 8;

export const standingFreezes = (policy) => (policy.spec.freezes || []).filter((freeze) => !freeze.until || Date.parse(freeze.until) > Date.now());

// Writes what `specOf` makes of a policy as it is now, not as it was shown. The loop writes its status all the while: what is lost to that is tried again.
async function change(policy, specOf) {
  const path = `${POLICIES}/${encodeURIComponent(policy.name)}`;
  for (let tries = 1; ; tries++) {
    const { metadata, spec } = await get(path);
    try {
      return await merge(path, { metadata: { resourceVersion: metadata.resourceVersion }, spec: specOf({ name: policy.name, spec }) });
    } catch (error) {
      if (error.code !== 409 || tries === TRIES) throw error;
    }
  }
}

// All of them, though one be refused: a freeze that closed most is better than none.
async function changeAll(policies, specOf) {
  const done = await Promise.allSettled(policies.map((policy) => change(policy, specOf)));
  const refused = done.flatMap((one, at) => (one.status === "rejected" ? [`${policies[at].name}: ${one.reason.message}`] : []));
  if (refused.length) throw new Error(`${many(done.length - refused.length, "policy", "policies")} done; not done: ${refused.join("; ")}`);
}

const same = (freeze) => JSON.stringify([freeze.reason, freeze.author, freeze.until ?? "", freeze.kinds || [], freeze.namespaces || [], freeze.names || []]);

// Whether nothing of what the policy guards can be acted on: a freeze of one thing, or of some, closes no gate.
const closes = (policy, { kinds, namespaces, names }) => !names?.length && !namespaces?.length && (!kinds?.length || (policy.spec.fleet?.kinds?.length > 0 && policy.spec.fleet.kinds.every((kind) => kinds.includes(kind))));
export const closingFreezes = (policy) => standingFreezes(policy).filter((freeze) => closes(policy, freeze));

// Which of what a policy guards a freeze is of; nothing where it is all of it.
function partOf(policy, freeze) {
  if (closes(policy, freeze)) return "";
  return `${listed(freeze.names) || (freeze.namespaces?.length ? `namespace ${listed(freeze.namespaces)}` : listed(freeze.kinds))} `;
}

export const frozenWords = (policy, freeze) => `${partOf(policy, freeze)}frozen by ${freeze.author}: ${freeze.reason}`;

const listed = (names) => (names?.length > 2 ? `${names.slice(0, 2).join(", ")} and ${names.length - 2} more` : (names || []).join(", "));

export function Freezing({ policies, thaw, onClose }) {
  const [reason, setReason] = useState("");
  const [hours, setHours] = useState("");
  const [shown] = useState(policies); // what somebody looks at and says yes to does not change under their eyes
  const doing = useDoing();
  const submit = async (event) => {
    event.preventDefault();
    const freeze = { reason, author: current().user, ...(hours ? { until: new Date(Date.now() + hours * 3600e3).toISOString().replace(/\.\d+/, "") } : {}) };
    const lifted = new Set(shown.flatMap((policy) => standingFreezes(policy).map((one) => `${policy.name} ${same(one)}`)));
    const left = (policy) => standingFreezes(policy).filter((one) => !lifted.has(`${policy.name} ${same(one)}`));
    if (await doing.run(() => changeAll(shown, (policy) => ({ freezes: thaw ? left(policy) : [...standingFreezes(policy), freeze] })))) onClose();
  };
  return html`<${Dialog} title=${thaw ? `Unfreeze ${many(shown.length, "policy", "policies")}?` : `Freeze ${many(shown.length, "policy", "policies")}?`} onClose=${onClose}>
    <form onSubmit=${submit}>
      ${thaw
        ? html`<p>This is lifted:</p><ul>${shown.flatMap((policy) => standingFreezes(policy).map((freeze) => html`<li><strong>${policy.name}</strong>: ${partOf(policy, freeze)}${freeze.reason} (${freeze.author})</li>`))}</ul>
            <${LetGo} policies=${shown} thawed />`
        : html`<p>Nothing will be changed, made or deleted until somebody lifts it${hours ? ` or ${hours} h are over` : ""}. Drift is seen and reported all the while.</p>
            <label>Reason<input required value=${reason} onInput=${(event) => setReason(event.target.value)} placeholder="what is the matter" /></label>
            <label>Ends after (hours, empty: when somebody lifts it)<input type="number" min="0.1" step="any" value=${hours} onInput=${(event) => setHours(event.target.value)} /></label>`}
      <${Problem}>${doing.error}<//>
      <div class="buttons"><button type="button" class="quiet" onClick=${onClose}>Cancel</button><button class=${thaw ? "thaw" : "freeze"} disabled=${doing.busy}>${thaw ? "Unfreeze" : "Freeze"}</button></div>
    </form>
  <//>`;
}

export function Turning({ policy, acts, onClose }) {
  const doing = useDoing();
  const turn = () => doing.run(() => change(policy, () => ({ mode: acts ? "Observe" : "Enforce" }))).then((done) => done && onClose());
  return html`<${Dialog} title=${acts ? "Only observe from now on?" : "Let it act from now on?"} onClose=${onClose}>
    ${acts ? html`<p>Drift is reported, and nothing is done about it.</p>` : html`<${LetGo} policies=${[policy]} enforced />`}
    <${Problem}>${doing.error}<//>
    <div class="buttons"><button type="button" class="quiet" onClick=${onClose}>Cancel</button><button type="button" class="approve" disabled=${doing.busy} onClick=${turn}>${acts ? "Only observe" : "Let it act"}</button></div>
  <//>`;
}

// What would be done then, by the real guards, as it stands now.
function LetGo({ policies, thawed, enforced }) {
  const [fleets, setFleets] = useState(null);
  const [problem, setProblem] = useState("");
  const topic = { topic: "as-if", policies: policies.map((policy) => policy.name).join(","), thawed: String(Boolean(thawed)), enforced: String(Boolean(enforced)) };
  useTopics({ asif: topic }, (_, words) => (words.error ? setProblem(words.error) : (setProblem(""), setFleets(words.fleets))));
  if (problem) return html`<${Problem}>What would be done then cannot be told: ${problem}<//>`;
  if (!fleets) return html`<p class="loading">Looking what would be done…</p>`;
  if (!fleets.length) return html`<p>Then: all is as declared, so nothing is to be done now.</p>`;
  return html`<p>Then, as it stands now:</p><div class="scroll">${fleets.map((fleet) => html`<section key=${fleet.fleet} aria-label=${fleet.fleet}>
    ${fleet.words.map((line, at) => html`<p class=${at ? "hint" : ""}>${at ? line : html`<strong>${line}</strong>`}</p>`)}
    <${Lines} drifts=${fleet.drifts} total=${fleet.open} />
  </section>`)}</div>`;
}
