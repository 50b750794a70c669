// A view that is loaded when it is first looked at: `load` gives its module, `view` is what the module calls it.
import { html, useEffect, useState } from "./lib.js";
import { Problem } from "./parts.js";

export function Later({ load, view, ...rest }) {
  const [found, setFound] = useState({});
  useEffect(() => {
    let here = true;
    load().then((module) => here && setFound({ View: module[view] }), (error) => here && setFound({ error: error.message }));
    return () => (here = false);
  }, [view]);
  if (found.View) return html`<${found.View} ...${rest} />`;
  return html`<main>${found.error ? html`<${Problem}>The view could not be loaded: ${found.error}<//>` : html`<p class="loading">Loading…</p>`}</main>`;
}
