"""From what Slurm prints to what a bridge sees. Pure functions of its JSON, in the forms of 21.08 to 22.05 and of 23.02 and later."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from homeostat.gpu.bridge.cluster import Job, Mark, Member, Stage, Unreadable

Object = Mapping[str, Any]
Exits = Callable[[Mark], int | None]
"""The exit status that the job itself wrote down."""

PREFIX = "homeostat:"
"""Before the mark, in the comment of a job."""
BEGUN_BEFORE = 122
"""The exit status of a job that found its start made already."""
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip
_TAKEN = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"}
_BY_ITSELF = {"COMPLETED", "FAILED"}
_DEAD = {
    "DOWN", "ERROR", "FUTURE", "INVALID", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "UNKNOWN",
}  # fmt: skip
_CLOSED = {
    "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "INVALID_REG", "MAINT", "MAINTENANCE", "REBOOT_REQUESTED", "REBOOT_ISSUED", "RESERVED",
}  # fmt: skip
_GPUS = re.compile(r"(?:^|,)(?:gres[:/])?gpu:(?:([^:,()]+):)?(\d+)(?:\(([^)]*)\))?")
_INDEXES = re.compile(r"IDX:([0-9,-]+)").search
_SIGNALS = range(129, 129 + 64)


def listed(document: Any, what: str) -> list[Object]:
    """The list that a document is about. `Unreadable` where it is another document, or says that something went wrong."""
    found = document.get(what) if isinstance(document, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise Unreadable(f"Slurm printed JSON without {what}")
    if problems := document.get("errors"):
        first = problems[0] if isinstance(problems, list) else problems
        words = (first.get("description"), first.get("error")) if isinstance(first, dict) else (str(first),)
        raise Unreadable(": ".join(str(word)[:200] for word in words if word) or "Slurm says that something went wrong, and not what")
    return found


def number(value: Any) -> int | None:
    """A number; newer versions say beside it whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def states(*values: Any) -> set[str]:
    """A state and its flags, which newer versions have in one list."""
    words = (word for value in values for word in (value if isinstance(value, list) else [value or ""]))
    return {str(word).upper() for word in words if word}


def gpus(text: Any) -> dict[str, tuple[int, str]]:
    """By type, how many GPUs a list of generic resources has, and which, where that is said. The type is empty where there is none."""
    found: dict[str, tuple[int, str]] = {}
    for kind, count, more in _GPUS.findall(str(text or "")):
        which = _INDEXES(more)
        before = found.get(kind, (0, ""))
        found[kind] = (before[0] + int(count), which[1] if which else before[1])
    return found


def members_of(nodes: Iterable[Object], named: Callable[[str], str], model: Callable[[str], tuple[str, int]], partition: str) -> list[Member]:
    """The machines with GPUs. `named` gives the name as a GpuNode, empty where it can have none; `model` the model and memory of a type.

    A machine with several types of GPU counts with that of which it has most.
    """
    found = []
    for node in nodes:
        has = gpus(node.get("gres"))
        name = named(str(node.get("name", "")))
        if not has or not name or (partition and partition not in (node.get("partitions") or ())):
            continue
        kind = max(has, key=lambda one: (has[one][0], one))
        used = gpus(node.get("gres_used"))
        flags = states(node.get("state"), node.get("state_flags"))
        called, memory = model(kind)
        bad, closed = flags & _DEAD, flags & _CLOSED
        said = str(node.get("reason") or "")[:200]
        found.append(
            Member(
                name=name,
                id=str(node["name"]),
                model=called,
                gpus=has[kind][0],
                used=used.get(kind, (0, ""))[0],
                alive=not bad,
                why=", ".join(sorted(bad or closed)) + (f" ({said})" if said else ""),
                cordoned=bool(closed),
                cpu_milli=(number(node.get("cpus")) or 0) * 1000,
                memory_mib=number(node.get("real_memory")) or 0,
                gpu_memory_mib=memory,
                type=kind,
            )
        )
    return found


def jobs_of(jobs: Iterable[Object], exits: Exits) -> list[Job]:
    """Those that bear a mark."""
    found = []
    for job in jobs:
        comment = str(job.get("comment") or "")
        mark = Mark.parse(comment.removeprefix(PREFIX)) if comment.startswith(PREFIX) else None
        if mark is not None:
            found.append(_job(job, mark, exits))
    return found


def _job(job: Object, mark: Mark, exits: Exits) -> Job:
    flags, at = states(job.get("job_state")), number(job.get("job_id")) or 0
    has = [gpus(one) for one in job.get("gres_detail") or ([] if flags & _WAITING else [job.get("tres_per_node")])]
    given = ",".join(which for one in has for _, which in one.values() if which)
    base = Job(mark, str(at), Stage.ON, at, holds=sum(count for one in has for count, _ in one.values()), words=f"Slurm job {at}")
    if flags & _OVER and "COMPLETING" not in flags:
        return _over(job, base, flags, exits)
    if flags & _WAITING:
        why = str(job.get("state_reason") or "")[:100]
        return _but(base, Stage.WAITING, f"{base.words} waits: {why}", number(job.get("submit_time")))
    return _but(base, Stage.ON, f"{base.words}, GPU {given}" if given else base.words, number(job.get("start_time")))


def _over(job: Object, base: Job, flags: set[str], exits: Exits) -> Job:
    status = exits(base.mark)
    told = _exit_code(job.get("exit_code"))
    if status is None and flags & _BY_ITSELF:
        status = told
    twice = status == BEGUN_BEFORE
    words = base.words if flags & _BY_ITSELF else f"{base.words}: {', '.join(sorted(flags & _OVER)).lower()}"
    if status is None and job.get("state_reason") not in (None, "", "None"):
        words += f" ({job['state_reason']})"
    return Job(
        base.mark,
        base.id,
        Stage.OVER,
        base.number,
        words=f"{base.words} was begun before" if twice else words,
        since=number(job.get("end_time")),
        status=None if twice else signalled(status),
        taken=bool(flags & _TAKEN) or twice,
    )


def _exit_code(value: Any) -> int | None:
    """Older versions have it as the kernel does, newer ones taken apart."""
    if isinstance(value, dict):
        killed = number((value.get("signal") or {}).get("id") or (value.get("signal") or {}).get("signal_id"))
        return -killed if killed else number(value.get("return_code"))
    raw = number(value)
    return None if raw is None or raw > 0xFFFF else os.waitstatus_to_exitcode(raw)


def signalled(status: int | None) -> int | None:
    """An exit status, negative for a signal. A shell says that by more than 128."""
    return 128 - status if status is not None and status in _SIGNALS else status


def _but(job: Job, stage: Stage, words: str, since: int | None) -> Job:
    return Job(job.mark, job.id, stage, job.number, holds=job.holds, words=words, since=since)
