// Who is signed in. The token lives in this tab alone and is said with each request: there is no cookie that another site could ride on.

const KEY = "homeostat.session";

let session = read();
const listeners = new Set();

function read() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY));
    return found && Date.parse(found.expires) > Date.now() ? found : null;
  } catch {
    return null;
  }
}

function keep(found) {
  session = found;
  if (found) sessionStorage.setItem(KEY, JSON.stringify(found));
  else sessionStorage.removeItem(KEY);
  for (const heard of listeners) heard(found);
}

export const current = () => session;
export const signOut = () => keep(null);

export function onChange(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

// A refusal of the server: its own words, and the code.
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

// A link that signs in has its code behind the #, which no server and no log ever sees.
export async function signInByLink() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  const reply = await fetch("/ui/session", { method: "POST", body: JSON.stringify({ code }) });
  if (!reply.ok) throw new Refused(reply.status, "This link was used, or is too old. `homeostat ui` prints another.");
  keep(await reply.json());
}

export async function signInByToken(token) {
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const reply = await fetch("/apis/authentication.k8s.io/v1/selfsubjectreviews", {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify(review),
  });
  if (!reply.ok) throw new Refused(reply.status, "The server does not know this token, or it has expired.");
  const { status } = await reply.json();
  keep({ token, user: status.userInfo.username, expires: new Date(Date.now() + 12 * 3600e3).toISOString() });
}

// One request to the Kubernetes API, as who is signed in. Throws `Refused` with the server's words.
export async function request(method, path, body, type = "application/json", more = {}) {
  const reply = await fetch(path, {
    method,
    headers: { Authorization: `Bearer ${session?.token}`, ...(body === undefined ? {} : { "Content-Type": type }), ...more },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (reply.status === 401) signOut();
  const text = await reply.text();
  const found = text.startsWith("{") ? JSON.parse(text) : text;
  if (!reply.ok) throw new Refused(reply.status, found.message || text || reply.statusText);
  return found;
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const merge = (path, body) => request("PATCH", path, body, "application/merge-patch+json");

// What somebody may not do is not offered. Asked once a tab; the server decides again at each request.
const known = new Map();

export function may(verb, group, resource, namespace = "") {
  const key = [session?.user, verb, group, resource, namespace].join("|");
  if (!known.has(key)) {
    const resourceAttributes = { verb, group, resource, namespace };
    const review = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } };
    const asked = post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review);
    known.set(key, asked.then((said) => Boolean(said.status?.allowed), () => false));
  }
  return known.get(key);
}
