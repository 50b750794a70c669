// All resources of a kind: what is not as declared first.
import { html, useMemo, useRef, useState } from "../lib.js";
import { useTopics } from "../live.js";
import { Problem, Rows, STANDINGS, Standing, useNarrow } from "../parts.js";
import { Link, resourcePath, setQuery, useRoute } from "../router.js";
import { Ago, number } from "../words.js";

const URGENCY = { degraded: 0, held: 1, unknown: 2, progressing: 3, converged: 4 };
const keyOf = (row) => `${row.namespace}/${row.name}`;

export function Kind({ name }) {
  const { query } = useRoute();
  const rows = useRef(new Map());
  const [version, setVersion] = useState(0);
  const [problem, setProblem] = useState("");
  const state = useTopics({ rows: { topic: "rows", kind: name } }, (_, words) => {
    if (words.error) return setProblem(words.error);
    if (words.whole) rows.current = new Map(words.whole.map((row) => [keyOf(row), row]));
    for (const row of words.rows || []) rows.current.set(keyOf(row), row);
    for (const [namespace, gone] of words.gone || []) rows.current.delete(`${namespace}/${gone}`);
    setProblem("");
    setVersion((last) => last + 1);
  });
  const narrow = useNarrow();
  const wanted = (query.get("q") || "").toLowerCase();
  const standing = query.get("standing") || "";
  const shown = useMemo(() => {
    const found = [...rows.current.values()].filter(
      (row) => (!standing || row.standing === standing) && (!wanted || `${keyOf(row)} ${row.message || ""}`.toLowerCase().includes(wanted)),
    );
    return found.sort((a, b) => URGENCY[a.standing] - URGENCY[b.standing] || (keyOf(a) < keyOf(b) ? -1 : 1));
  }, [version, wanted, standing]);
  const counts = useMemo(() => {
    const found = {};
    for (const row of rows.current.values()) found[row.standing] = (found[row.standing] || 0) + 1;
    return found;
  }, [version]);

  return html`<main>
    <header class="title"><h1>${name}</h1><p>${number(rows.current.size)} resources</p></header>
    <div class="filters" role="search">
      <input type="search" aria-label="Filter by name or message" placeholder="Filter by name or message" value=${query.get("q") || ""} onInput=${(event) => setQuery({ q: event.target.value })} />
      ${STANDINGS.map(
        (one) => html`<button type="button" class=${`chip ${standing === one ? "on" : ""}`} aria-pressed=${standing === one} onClick=${() => setQuery({ standing: standing === one ? "" : one })}><${Standing} is=${one}>${one} ${number(counts[one] || 0)}<//></button>`,
      )}
    </div>
    <${Problem}>${problem}<//>
    ${state === "connecting" && !version
      ? html`<p class="loading">Loading…</p>`
      : html`<${Rows}
          label=${name}
          columns=${narrow ? ["Standing", "Name"] : ["Standing", "Name", "Since", "What"]}
          height=${narrow ? 54 : 34}
          look=${narrow ? "tall" : ""}
          rows=${shown}
          keyOf=${keyOf}
          empty=${rows.current.size ? "Nothing matches this filter." : html`Nothing of this kind is declared yet. <code>homeostat apply -f FILE</code> declares it.`}
          row=${(row) => html`<td><${Standing} is=${row.standing} /></td>
            <td><${Link} to=${resourcePath(name, row.namespace, row.name)}>${row.namespace ? `${row.namespace}/` : ""}${row.name}<//>${narrow && row.message ? html`<span class="message">${row.message}</span>` : ""}</td>
            ${narrow ? "" : html`<td><${Ago} time=${row.since} /></td><td class="message" title=${row.message || ""}>${row.message || ""}</td>`}`}
        />`}
  </main>`;
}
