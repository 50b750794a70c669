// The frame: who is signed in, where one can go, whether what is shown is live.
import { html, render, useEffect, useState } from "./lib.js";
import { useConnection } from "./live.js";
import { Link, go, resourcePath, useRoute } from "./router.js";
import { current, onChange, signInByLink, signOut } from "./session.js";
import { kindOf } from "./kinds.js";
import { Later } from "./later.js";
import { Audit } from "./views/audit.js";
import { ChangeSet, ChangeSets } from "./views/changesets.js";
import { Events } from "./views/events.js";
import { Fleet } from "./views/fleet.js";
import { Guards } from "./views/guards.js";
import { Policy } from "./views/policy.js";
import { Kind } from "./views/kind.js";
import { Resource } from "./views/resource.js";
import { SignIn } from "./views/signin.js";

// Views by the first part of their address. Heavy ones are loaded when they are first looked at.
const VIEWS = {
  "": () => html`<${Fleet} />`,
  changesets: (parts) => (parts.length ? html`<${ChangeSet} key=${parts.join("/")} name=${parts.join("/")} />` : html`<${ChangeSets} />`),
  events: ([which]) => (which === "audit" ? html`<${Audit} />` : html`<${Events} />`),
  guards: ([name]) => (name ? html`<${Policy} key=${name} name=${name} />` : html`<${Guards} />`),
  gpu: ([what, namespace, name]) => html`<${Later} key=${`${what}/${namespace}/${name}`} load=${() => import("./views/gpu.js")} view=${what === "workloads" ? "GpuWorkload" : "Gpu"} namespace=${namespace} name=${name} />`,
  find: (parts) => html`<${Find} key=${parts.join("/")} parts=${parts} />`,
  kinds: ([name]) => html`<${Kind} key=${name} name=${name} />`,
  resources: ([kind, namespace, name]) => html`<${Resource} key=${`${kind}/${namespace}/${name}`} kindName=${kind} namespace=${namespace} name=${name} />`,
};
const PLACES = [["", "Fleet", "f"], ["changesets", "Change sets", "c"], ["guards", "Guards", "g"], ["gpu", "GPUs", "u"], ["events", "Events", "e"]];

function Frame() {
  const { parts } = useRoute();
  const [view = "", ...rest] = parts;
  const show = VIEWS[view];
  useEffect(() => {
    document.title = [...parts.slice(-1), "Homeostat"].join(" · ");
  }, [parts.join("/")]);
  useEffect(keys, []);
  return html`<a class="skip" href="#view">Skip to the view</a>
    <nav aria-label="Views">
      <${Link} to="" class="brand"><img src="/ui/icon.svg" alt="" width="22" height="22" /> Homeostat<//>
      <ul>${PLACES.map(([path, name, letter]) => html`<li><${Link} to=${path} aria-current=${view === path ? "page" : undefined} title=${`g ${letter}`}>${name}<//></li>`)}</ul>
      <${Connection} />
      <${Theme} />
      <div class="who"><span>${current().user}</span><button type="button" class="quiet" onClick=${signOut}>Sign out</button></div>
    </nav>
    <div id="view" tabindex="-1">${show ? show(rest) : html`<main><p class="empty">There is nothing at this address. <${Link} to="">To the fleet<//></p></main>`}</div>`;
}

// From what an event or an owner names (apiVersion and kind) to the address of the resource.
function Find({ parts: [apiVersion, kind, namespace, name] }) {
  const [missing, setMissing] = useState(false);
  useEffect(() => {
    kindOf(apiVersion, kind).then((found) => (found ? go(resourcePath(found.name, namespace === "-" ? "" : namespace, name), true) : setMissing(true)));
  }, []);
  return html`<main><p class="loading">${missing ? `The server has no kind ${kind} of ${apiVersion}.` : "Loading…"}</p></main>`;
}

// "g f" goes to the fleet, and so on; "/" goes to the filter.
function keys() {
  let leader = 0;
  const heard = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
    const led = Date.now() - leader < 1500;
    leader = 0;
    if (event.key === "/") {
      const field = document.querySelector("input[type=search]");
      if (field) {
        event.preventDefault();
        field.focus();
      }
    } else if (led) {
      const place = PLACES.find(([, , letter]) => letter === event.key);
      if (place) go(place[0]);
    } else if (event.key === "g") {
      leader = Date.now();
    }
  };
  addEventListener("keydown", heard);
  return () => removeEventListener("keydown", heard);
}

function Connection() {
  const state = useConnection();
  const words = { live: "live", connecting: "connecting…", lost: "connection lost, trying again…" };
  return html`<p class=${`connection ${state}`} role="status">${words[state]}</p>`;
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("homeostat.theme") || "");
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("homeostat.theme", theme);
  }, [theme]);
  const next = { "": "dark", dark: "light", light: "" };
  const word = { "": "as the system", dark: "dark", light: "light" };
  return html`<button type="button" class="quiet" onClick=${() => setTheme(next[theme])} aria-label=${`Colours: ${word[theme]}`} title=${`Colours: ${word[theme]}`}>◑</button>`;
}

function App({ problem }) {
  const [session, setSession] = useState(current());
  useEffect(() => onChange(setSession), []);
  return session ? html`<${Frame} />` : html`<${SignIn} problem=${problem} />`;
}

const problem = await signInByLink().then(() => "", (error) => error.message);
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} problem=${problem} />`, root);
