// What is open, or would be done: a line each, with its sign.
import { html } from "./lib.js";
import { Link, resourcePath } from "./router.js";
import { Ago, number } from "./words.js";

export const SIGNS = { create: "+", update: "~", delete: "−" };

export function Lines({ drifts, total }) {
  return html`<ul class="plan">${drifts.map((one) => html`<li key=${`${one.resource}/${one.namespace}/${one.name}`} class=${one.op}>
    <span class="sign" aria-label=${one.op}>${SIGNS[one.op]}</span> <${Link} to=${resourcePath(one.resource, one.namespace, one.name)}>${one.kind} ${one.namespace ? `${one.namespace}/` : ""}${one.name}<//>
    <span class="hint">${one.cause}${one.by.length ? `, by ${one.by.join(", ")}` : ""}, <${Ago} time=${one.since} />${one.heldBy ? ` · held by ${one.heldBy}` : ""}</span>
    ${one.changes.length > 0 && html`<pre tabindex="0">${one.changes.join("\n")}</pre>`}
  </li>`)}</ul>${total > drifts.length && html`<p class="hint">and ${number(total - drifts.length)} more</p>`}`;
}
