"""From a workload and a place to a process: command, environment, GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import orjson
from msgspec.structs import replace

from homeostat.gpu.agent import witness
from homeostat.gpu.agent.devices import Devices
from homeostat.gpu.agent.wanted import DEVICES, Declared
from homeostat.gpu.kinds import WHOLE, Place
from homeostat.loop.provider import Refused
from homeostat.providers.process.kind import Definition
from homeostat.providers.process.launch import Allowed, Start, prepare

MPS_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


class Rules(msgspec.Struct, frozen=True):
    """What processes may do here."""

    allowed: Allowed = True
    """Which commands: any, or those whose program lies in one of these folders."""
    user: str = ""
    """As whom they run; empty: as the agent."""


def visible(devices: Devices, place: Place) -> str:
    """The GPUs of a place, as a process is told of them: in their order, whatever the order of the place. `Refused` where one was never here."""
    try:
        return devices.visible(sorted(place.gpus))
    except KeyError as error:
        raise Refused(f"this node has no GPU {error.args[0]}") from None


def starting(
    workload: Declared, place: Place, node: str, devices: Devices, rules: Rules, exit_file: Path
) -> tuple[Start, Definition]:
    """How to start a replica. `exit_file` is where its witness says how it ended. `Refused` says what is wrong with it, and what to do."""
    spec = workload.spec
    if not spec.command:
        raise Refused("the workload has no command: say what to run in spec.command")
    definition = Definition(
        command=list(spec.command),
        env={**spec.env, **_gpu_environment(workload, place, devices)},
        working_dir=spec.working_dir or "/",
        user=rules.user,
    )
    if not definition.working_dir.startswith("/"):
        raise Refused(f"the working directory {definition.working_dir} must begin with a slash")
    start = prepare(definition, rules.allowed)
    start = replace(start, env={**start.env, **about(workload, node)})
    return _witnessed(start, exit_file), definition


def about(workload: Declared, node: str) -> dict[str, str]:
    """What a replica is told of its workload in its environment, whoever starts it."""
    return {
        "HOMEOSTAT_WORKLOAD": f"{workload.namespace}/{workload.name}",
        "HOMEOSTAT_TENANT": workload.spec.tenant,
        "HOMEOSTAT_NODE": node,
        "HOMEOSTAT_REPLICAS": str(workload.spec.replicas),
        "HOMEOSTAT_NODES": ",".join(workload.nodes),
    }


def _witnessed(start: Start, exit_file: Path) -> Start:
    """The same, with a witness: it is what changes to the user, for the file is not the user's to write."""
    account = orjson.dumps(start.account).decode()
    argv = (sys.executable, "-I", "-S", str(witness.PROGRAM), str(exit_file), account)
    return replace(start, argv=argv, env={**start.env, witness.COMMAND: orjson.dumps(start.argv).decode()}, account={})


def _gpu_environment(workload: Declared, place: Place, devices: Devices) -> dict[str, str]:
    """Which GPUs, and how much of them. The share holds where NVIDIA's MPS runs on the machine; without it, it is an agreement."""
    env = {DEVICES: visible(devices, place)}
    if place.milli < WHOLE:
        env[MPS_SHARE] = f"{place.milli / 10:g}"
        if workload.spec.resources.gpu_memory_mib:
            env[MPS_MEMORY] = f"0={workload.spec.resources.gpu_memory_mib}M"
    return env
