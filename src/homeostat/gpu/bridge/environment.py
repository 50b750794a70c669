"""What a job finds in its environment, on whatever cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping

from homeostat.loop.provider import Refused

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_OURS = "HOMEOSTAT_"
_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"})


def environment(env: Mapping[str, str], ours: Mapping[str, str], reserved: str) -> dict[str, str]:
    """What a workload says and what we do, but for which GPUs it has: that is the cluster's to say.

    `Refused` where a name cannot be one, or begins with what is `reserved` to the cluster.
    """
    for name in env:
        if not _NAME(name) or name.startswith((_OURS, reserved)):
            raise Refused(f"env: {name!r} cannot be the name of a variable: letters, digits and _, and not {_OURS}… or {reserved}…")
    return {**{name: value for name, value in env.items() if name not in _DEVICES}, **ours}


def refuse_nul(*words: str) -> None:
    """`Refused` where one holds what no process can be given."""
    if any("\0" in word for word in words):
        raise Refused("neither the command nor the environment can hold a NUL character")
