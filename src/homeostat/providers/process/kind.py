"""What can be declared of a process, and what is seen of it."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta, field

from homeostat.model.kinds import MapAtomic, Rule, Sensitive, Spec, encode

GROUP = "processes.homeostat.dev"
MOST_REPLICAS = 1000

Seconds = Annotated[float, Meta(ge=0, le=86400)]
Amount = Annotated[
    int | str, Meta(extra_json_schema={"pattern": "^[0-9]+(\\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$", "minimum": 0})
]
Port = Annotated[int, Meta(ge=1, le=65535)]
Text = Annotated[str, Meta(max_length=32768)]
Argv = Annotated[list[Text], Meta(min_length=1, max_length=1024)]


class Limits(Spec):
    """What the kernel holds a replica to, itself and each process that it starts; what is not set is as for the control plane."""

    address_space: Amount | None = None
    """Virtual memory of one process, in bytes or as `512Mi` (RLIMIT_AS)."""
    open_files: Annotated[int, Meta(ge=3)] | None = None
    """RLIMIT_NOFILE."""
    cpu_seconds: Annotated[int, Meta(ge=1)] | None = None
    """CPU time of one process; beyond it, it is killed (RLIMIT_CPU)."""
    processes: Annotated[int, Meta(ge=1)] | None = None
    """How many processes its user may have, all together (RLIMIT_NPROC). Root is not held to it."""
    file_size: Amount | None = None
    """The largest file that it may write, its log files among them (RLIMIT_FSIZE)."""
    core: Amount | None = None
    """RLIMIT_CORE."""
    stack: Amount | None = None
    """RLIMIT_STACK."""
    locked_memory: Amount | None = None
    """RLIMIT_MEMLOCK."""
    nice: Annotated[int, Meta(ge=-20, le=19)] | None = None
    """How readily it gives way to others, from -20 (never; only for root) to 19."""


class Definition(Spec):
    """What a replica is started with. A replica with another one is replaced."""

    command: Argv
    """The program and its arguments. No shell reads it. A program without a slash is looked for in PATH."""
    env: Annotated[dict[str, Annotated[Text, Sensitive]], MapAtomic, Meta(max_length=256)] = {}
    """All of its environment but PATH, which is the control plane's where none is given, and HOMEOSTAT_INDEX (0, 1, …)."""
    working_dir: Annotated[str, Meta(pattern="^/", max_length=4096)] = "/"
    user: Annotated[str, Meta(max_length=256)] = ""
    """Whom it runs as; needs a control plane that runs as root. Empty: as the control plane."""
    limits: Annotated[Limits, MapAtomic] = field(default_factory=Limits)


class ExecProbe(Spec):
    """Passes when the command ends with 0. It runs as the control plane, with the environment of the replica."""

    command: Argv


class Header(Spec):
    """A header of a request."""

    name: str
    value: str = ""


class HttpProbe(Spec):
    """Passes with a status from 200 to 399."""

    port: Port
    path: str = "/"
    host: str = ""
    """Default: this machine."""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    http_headers: Annotated[list[Header], Meta(max_length=32)] = []


class TcpProbe(Spec):
    """Passes when a connection is accepted."""

    port: Port
    host: str = ""
    """Default: this machine."""


class GrpcProbe(Spec):
    """Passes when grpc.health.v1 answers SERVING."""

    port: Port
    service: str = ""


class Probe(Spec):
    """A look at a replica, again and again, as Kubernetes has it."""

    exec: ExecProbe | None = None
    http_get: HttpProbe | None = None
    tcp_socket: TcpProbe | None = None
    grpc: GrpcProbe | None = None
    initial_delay_seconds: Seconds = 0.0
    period_seconds: Annotated[float, Meta(gt=0, le=86400)] = 10.0
    timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 1.0
    success_threshold: Annotated[int, Meta(ge=1)] = 1
    failure_threshold: Annotated[int, Meta(ge=1)] = 3

    rules = [
        Rule(
            "[has(self.exec), has(self.httpGet), has(self.tcpSocket), has(self.grpc)].filter(x, x).size() == 1",
            message="a probe has exactly one of exec, httpGet, tcpSocket and grpc",
        )
    ]


class Restart(Spec):
    """What happens when a replica ends by itself."""

    policy: Literal["Always", "OnFailure", "Never"] = "Always"
    """`OnFailure` restarts what did not end with 0, or of which nobody saw how it ended."""
    first_seconds: Seconds = 1.0
    """The first crash is followed at once; the second in a row waits so long, and each after it twice as long as the one before,"""
    most_seconds: Seconds = 300.0
    """up to this."""
    stable_seconds: Seconds = 10.0
    """A replica that ran so long was well: its crashes are counted anew."""


class Logs(Spec):
    """The output of each replica, `INDEX.out` and `INDEX.err` in the provider's state directory."""

    max_bytes: Annotated[int, Meta(ge=4096)] = 10 * 1024 * 1024
    """A file that is larger is rotated, within about a second."""
    keep: Annotated[int, Meta(ge=0, le=100)] = 3
    """How many rotated files stay: `INDEX.out.1` is the newest."""


class ProcessSpec(Definition):
    """Replicas of a command, as they should be."""

    replicas: Annotated[int, Meta(ge=0, le=MOST_REPLICAS)] = 1
    readiness: Probe | None = None
    """Who fails it is not ready. A replica without it is ready while it runs."""
    liveness: Probe | None = None
    """Who fails it is restarted."""
    restart: Restart = field(default_factory=Restart)
    logs: Logs = field(default_factory=Logs)
    stop_signal: Literal["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGKILL"] = (
        "SIGTERM"
    )
    """What the process is sent first to end it."""
    graceful_seconds: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    """How long it has to end by itself; then it is killed with all that it started."""
    min_ready_seconds: Seconds = 1.0
    """When the definition changes: how long a new replica must have been up before the next is replaced."""
    ready_within_seconds: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    """When the definition changes: a new replica that is not ready by then stops the change."""


class ProcessState(Definition):
    """Replicas as they are. The definition is the declared one, or that of a replica that has another."""

    replicas: int
    """Places that are filled: by a replica that runs, that is done, or that waits after crashes."""
    ready: int = 0
    restarts: int = 0
    """Since their definition was declared, all replicas together."""


_DEFINING = tuple(Definition.__struct_fields__)


def definition_of(spec: ProcessSpec) -> Definition:
    """The part of a declaration that a replica is started with."""
    return Definition(**{name: getattr(spec, name) for name in _DEFINING})


def digest_of(definition: Definition) -> str:
    """The same for the same definition, and for no other."""
    wire: dict[str, Any] = encode(definition)
    return hashlib.sha256(orjson.dumps(wire, option=orjson.OPT_SORT_KEYS)).hexdigest()
