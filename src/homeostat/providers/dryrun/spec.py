"""The fields that modules of all tools share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from msgspec import Meta

from homeostat.model.kinds import ListMap, MapAtomic, Rule, Spec
from homeostat.providers.references import Source

FILES_MOST = 200
"""Files that one declaration may hold."""
TIMEOUT_MOST = 7200.0
"""Seconds that one run may ask for."""

Within = Annotated[str, Meta(max_length=1024)]
"""A path inside of the source."""


class ModuleSource(Spec):
    """Where the code is: in the declaration itself, or in a directory of the host."""

    files: Annotated[dict[str, str], MapAtomic, Meta(max_length=FILES_MOST)] = {}
    """Text by its path: `{main.tf: …}`. For all to read: secrets go by `variablesFrom`."""
    path: Annotated[str, Meta(pattern="^(/|$)", max_length=4096)] = ""
    """A directory of the host, below a root that it allows. It is copied, and looked at anew each time."""

    rules = [
        Rule("(size(self.files) > 0) != (self.path != '')", message="give files or a path, one of the two"),
    ]


class ModuleSpec(Spec):
    """What a tool with a dry run keeps as declared."""

    source: ModuleSource
    directory: Within = ""
    """Where in the source the tool runs; empty: at its top."""
    variables: Annotated[dict[str, Any], MapAtomic, Meta(max_length=1000)] = {}
    """For all to read: secrets go by `variablesFrom`."""
    variables_from: Annotated[list[Source], ListMap("name"), Meta(max_length=32)] = []
    """ConfigMaps and Secrets of the same namespace: each of their keys is a variable. Values of Secrets are shown nowhere."""
    environment_from: Annotated[list[Source], ListMap("name"), Meta(max_length=32)] = []
    """The same for the tool's environment, such as credentials of a cloud."""
    interval: timedelta = timedelta(minutes=5)
    """How often the tool looks while nothing is known to have moved. Before something is done it always looks."""
    timeout: timedelta = timedelta(minutes=10)
    """How long one run may take, up to 2 hours. Then it is interrupted, and killed if it does not end."""
