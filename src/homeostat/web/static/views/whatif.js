// Other limits, held against how the fleet went: how often would they have tripped?
import { html, useState } from "../lib.js";
import { useTopics } from "../live.js";
import { Problem } from "../parts.js";
import { Ago, many, number } from "../words.js";

const WORDS = {
  massDrift: ["Mass drift", (one) => `more than ${number(one.limit)} differed`],
  unknown: ["Unknown", (one) => `more than ${number(one.limit)} could not be read`],
  cap: ["Cap", (one) => `a wave had more than ${number(one.limit)}`],
};

export function WhatIf({ policy }) {
  const { spec } = policy;
  const [asked, setAsked] = useState({ massDrift: String(spec.massDrift?.limit ?? ""), unknown: String(spec.unknown ?? ""), cap: String(spec.cap ?? "") });
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const good = Object.values(asked).every((text) => /^\d{1,9}%?$/.test(text.trim()));
  const topic = { topic: "trips", policy: policy.metadata.name, fleetOf: spec.massDrift?.fleetOf ?? 0, ...(good ? asked : {}) };
  useTopics({ trips: topic }, (_, words) => {
    setProblem(words.error || "");
    if (!words.error) setFound(words);
  });
  return html`<section class="panel" aria-labelledby="whatif"><h2 id="whatif">What if the limits were…</h2>
    <div class="gauges">${Object.entries(WORDS).map(([name, [title, words]]) => html`<label key=${name}>${title}<input value=${asked[name]} aria-invalid=${!/^\d{1,9}%?$/.test(asked[name].trim())} onInput=${(event) => setAsked({ ...asked, [name]: event.target.value })} />
      <span class="hint" aria-live="polite">${good && found?.trips[name] ? outcome(found.trips[name], words) : good ? "" : "a count such as 3, or a share such as 10%"}</span></label>`)}</div>
    <${Problem}>${problem}<//>
    ${found?.since
      ? html`<p class="hint">From ${many(found.samples, "sample")}, one every ${found.every} s, since <${Ago} time=${new Date(1000 * found.since).toISOString()} /> (a day at most, while the server ran; each sample has the most there was since the one before). In that time guards did halt it ${many(found.happened.times, "time")}, for ${number(found.happened.seconds)} s. Mass drift counts changes and deletions apart and no creations: samples hold all differences together, so it may have tripped less often, never more,.</p>`
      : found && html`<p class="hint">No sample was taken yet: the first comes within seconds.</p>`}
  </section>`;
}

function outcome(one, words) {
  if (!one.times) return "would not have tripped";
  return `would have tripped ${many(one.times, "time")}, for ${number(one.seconds)} s: ${words(one)}, at most ${number(one.most)}`;
}
