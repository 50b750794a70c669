// Kinds as the server serves them: from `files.files.homeostat.dev` to a path. Asked once a tab, and again when one is missing.
import { useEffect, useState } from "./lib.js";
import { request } from "./session.js";

const AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
let asked = null;

async function read() {
  const found = new Map();
  for (const path of ["/api", "/apis"]) {
    const document = await request("GET", path, undefined, undefined, { Accept: AGGREGATED });
    for (const group of document.items || []) {
      for (const version of group.versions) {
        for (const one of version.resources || []) {
          const name = group.metadata.name ? `${one.resource}.${group.metadata.name}` : one.resource;
          const apiVersion = group.metadata.name ? `${group.metadata.name}/${version.version}` : version.version;
          if (one.responseKind && !found.has(name))
            found.set(name, { name, apiVersion, group: group.metadata.name || "", plural: one.resource, kind: one.responseKind.kind, namespaced: one.scope === "Namespaced" });
        }
      }
    }
  }
  return found;
}

export async function kindNamed(name) {
  asked ||= read();
  const found = (await asked).get(name);
  if (found) return found;
  asked = read();
  return (await asked).get(name);
}

export async function kindOf(apiVersion, kind) {
  asked ||= read();
  return [...(await asked).values()].find((one) => one.kind === kind && one.group === (apiVersion.includes("/") ? apiVersion.split("/")[0] : ""));
}

export function objectPath(kind, namespace, name) {
  const base = kind.group ? `/apis/${kind.apiVersion}` : `/api/${kind.apiVersion}`;
  const room = kind.namespaced ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${base}${room}/${kind.plural}/${encodeURIComponent(name)}`;
}

// A hook: the kind, null while it is being asked for, undefined where there is none.
export function useKind(name) {
  const [kind, setKind] = useState(null);
  useEffect(() => {
    let here = true;
    kindNamed(name).then((found) => here && setKind(found), () => here && setKind(undefined));
    return () => (here = false);
  }, [name]);
  return kind;
}
