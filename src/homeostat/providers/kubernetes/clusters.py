"""The way to other Kubernetes APIs: a client for each kubeconfig, kept while its Secret says the same."""

from __future__ import annotations

import hashlib
from urllib.parse import urlsplit

import msgspec

from homeostat.client import Client
from homeostat.client.http import HttpTransport
from homeostat.client.kubeconfig import from_text
from homeostat.model.errors import ApiError
from homeostat.providers.addresses import Hosts
from homeostat.providers.kubernetes.spec import KubeconfigSecret
from homeostat.providers.references import Source, read_values

TRY_SECONDS = 10.0
"""How long one try of a request to another API may take."""


class Cluster(msgspec.Struct, frozen=True):
    """An API and how it is told from others; `here` is the one that declarations come from."""

    name: str
    client: Client
    here: bool = False

    async def uid(self) -> str:
        """Which cluster it is, as Kubernetes tells them apart: the uid of its kube-system. Empty where we may not read that."""
        try:
            found = await self.client.kind("v1", "Namespace").get("kube-system")
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            return ""
        return str(found["metadata"]["uid"])


class Clusters:
    """Clients by kubeconfig. One whose Secret changed is replaced; who still uses the old one is cut off."""

    def __init__(self, here: Client, hosts: Hosts) -> None:
        self._here = Cluster("", here, here=True)
        self._hosts = hosts
        self._known: dict[str, tuple[str, Cluster]] = {}

    async def find(self, namespace: str, named: KubeconfigSecret | None) -> Cluster:
        """The API that a declaration in this namespace means. Raises where its kubeconfig cannot be had or used."""
        if named is None:
            return self._here
        source = Source(name="kubeconfig", secret=named.name)
        text = (await read_values(self._here.client, namespace, [source])).get("kubeconfig", named.key)
        place = f"Secret {namespace}/{named.name}, {named.key}"
        name, digest = f"{place}, {named.context}", hashlib.sha256(text).hexdigest()
        known = self._known.get(name)
        if known is not None and known[0] == digest:
            return known[1]
        target = from_text(text, place, named.context or None)
        server = urlsplit(target.server)
        await self._hosts.check_all(server.hostname or "", server.port or (443 if server.scheme == "https" else 80))
        if known is not None:
            await known[1].client.close()
        client = Client(HttpTransport(target), namespace=target.namespace, timeout=TRY_SECONDS, attempts=2)
        cluster = Cluster(f"{name}, {digest}", client)
        self._known[name] = digest, cluster
        return cluster

    async def close(self) -> None:
        """Ends the connections to all but this API."""
        for _, cluster in self._known.values():
            await cluster.client.close()
        self._known.clear()
