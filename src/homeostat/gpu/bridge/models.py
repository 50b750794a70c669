"""What machines and GPUs of a cluster are called here."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence

import msgspec

from homeostat.gpu.agent.nvml import model_of
from homeostat.model.names import dns_subdomain_problems

log = logging.getLogger("homeostat.gpu.bridge")

_FORM = re.compile(r"([^=]*)=([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?::(\d+)([MG])i?)?").fullmatch
_passed_over: set[str] = set()


class Models(msgspec.Struct, frozen=True):
    """`said` are models and their memory in MiB by what the cluster calls them; `prefix` comes before the names of nodes."""

    said: Mapping[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    prefix: str = ""

    @classmethod
    def parse(cls, texts: Sequence[str], prefix: str = "") -> Models:
        """From `h100=H100:80G` and the like. ValueError where one is none of these."""
        said = {}
        for text in texts:
            match = _FORM(text)
            if match is None:
                raise ValueError(f"{text!r}: write it as TYPE=MODEL or TYPE=MODEL:MEMORY, such as h100=H100:80G")
            said[match[1].lower()] = match[2], int(match[3] or 0) * (1024 if match[4] == "G" else 1)
        return cls(said, prefix)

    def of(self, kind: str, memory_mib: int = 0) -> tuple[str, int]:
        """The model and the memory in MiB of what the cluster calls so; no memory: not known."""
        if kind.lower() in self.said:
            model, memory = self.said[kind.lower()]
            return model, memory or memory_mib
        return (model_of(kind.upper().replace("_", " ")) if kind else "GPU"), memory_mib

    def name_of(self, node: str) -> str:
        """The name of a machine as a GpuNode; empty, with a warning, where it can have none."""
        name = f"{self.prefix}{node.lower()}"
        if not (problems := dns_subdomain_problems(name)):
            return name
        if node not in _passed_over:
            _passed_over.add(node)
            log.warning("%s is passed over, for a GpuNode cannot be named so: %s", node, "; ".join(problems))
        return ""
