"""Talks to any Kubernetes API: a cluster's, Homeostat's over HTTPS, or Homeostat's in the same process.

    async with Client.connect() as client:
        widgets = client.kind("example.com/v1", "Widget", namespace="shop")

        await widgets.create({"metadata": {"name": "lamp"}, "spec": {"colour": "red"}})
        await widgets.patch("lamp", {"status": {"lit": True}}, subresource="status")
        await widgets.apply({"metadata": {"name": "lamp"}, "spec": {"colour": "blue"}}, field_manager="painter")

        for widget in await widgets.list(labels="room=hall"):
            print(widget["metadata"]["name"])

        async with widgets.informer() as informer:
            await informer.wait_synced()
            async for change in informer.changes():
                print(change.key, "is gone" if change.object is None else change.object["spec"])

A `Client` knows one server; `Client.kind` gives a handle on a kind, found by discovery when it is first used. Objects
are plain dicts, or msgspec Structs where a type is handed in (`Metadata` is their `metadata`). Requests are tried again
where that is safe, so what raises is worth raising: `ApiError` (in `homeostat.model.errors`) where the server refuses,
`Unreachable` where it does not answer, `ConfigError` where nobody can tell what to talk to.

A `Watch` is a stream of events that goes on over lost connections. An `Informer` is a local copy of a collection that
keeps itself current, tells which objects to look at, and never shows less than what this client has written.

A `Transport` carries the requests. In process it is `homeostat.api.local`, which needs no HTTP. Time is that of the
event loop and chance is the `source` of the client, so everything here runs on a virtual clock with a seed as well.
"""

from homeostat.client.client import Client
from homeostat.client.discovery import Served
from homeostat.client.informer import Change, Informer, NotSynced
from homeostat.client.kubeconfig import ConfigError
from homeostat.client.objects import Key, Metadata, OwnerReference, Packed
from homeostat.client.resource import Listing, Resource
from homeostat.client.transport import Answer, Reply, Transport, Unreachable
from homeostat.client.watch import Event, Watch

__all__ = [
    "Answer",
    "Change",
    "Client",
    "ConfigError",
    "Event",
    "Informer",
    "Key",
    "Listing",
    "Metadata",
    "NotSynced",
    "OwnerReference",
    "Packed",
    "Reply",
    "Resource",
    "Served",
    "Transport",
    "Unreachable",
    "Watch",
]
