"""Objects beside those that were declared: of the same kinds, in the same namespaces of the same APIs."""

from __future__ import annotations

from collections.abc import Sequence

from homeostat.loop.provider import Declared, Undeclared
from homeostat.providers.kubernetes.clusters import Cluster, Clusters
from homeostat.providers.kubernetes.spec import KubernetesObjectSpec


async def undeclared(clusters: Clusters, declared: Sequence[Declared[KubernetesObjectSpec]]) -> list[Undeclared]:
    """What has no declaration and no owner, in every collection in which something is declared. What cannot be listed is said."""
    known: dict[tuple[str, str, str, str], tuple[Cluster, set[str]]] = {}
    found: list[Undeclared] = []
    for one in declared:
        wanted = one.spec.object
        try:
            cluster = await clusters.find(one.ref.namespace, one.spec.kubeconfig_secret)
            namespace = ""
            if (await cluster.client.kind(wanted["apiVersion"], wanted["kind"]).served()).namespaced:
                default = one.ref.namespace if cluster.here else cluster.client.namespace
                namespace = wanted["metadata"].get("namespace") or default
        except Exception as error:
            found.append(Undeclared(f"beside {one.ref}", f"cannot be told: {error}"))
            continue
        place = (cluster.name, wanted["apiVersion"], wanted["kind"], namespace)
        known.setdefault(place, (cluster, set()))[1].add(wanted["metadata"]["name"])
    for (name, api_version, kind, namespace), (cluster, names) in sorted(known.items(), key=lambda item: item[0]):
        where = f" of {name.rpartition(', ')[0]}" if name else ""
        try:
            objects = await cluster.client.kind(api_version, kind).list(namespace=namespace)
        except Exception as error:
            found.append(Undeclared(f"{kind} in {namespace or 'the cluster'}{where}", f"cannot be told: {error}"))
            continue
        for obj in objects:
            metadata = obj["metadata"]
            owned = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
            if metadata["name"] not in names and not owned:
                title = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
                found.append(Undeclared(f"{kind} {title}", f"an object{where}"))
    return found
