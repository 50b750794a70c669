"""A real Slurm on loopback: a controller and two machines of eight GPUs, which are plain files. Nothing of it outlives the tests."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel", "scontrol")
NODES, GPUS = ("n1", "n2"), 8
SECONDS = 30.0

_CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
KillWait=1
MinJobAge=300
MessageTimeout=2
SlurmdTimeout=300
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=64 RealMemory=1000 Gres=gpu:h100:8
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=64 RealMemory=1000 Gres=gpu:h100:8
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def missing() -> str:
    """What there is not of Slurm; empty where all is there."""
    found = [name for name in PROGRAMS if program(name) is None]
    return f"Slurm's {', '.join(found)} is not installed: scripts/test-tools installs Debian's slurmctld, slurmd and slurm-client" if found else ""


class SlurmCluster:
    """A cluster whose controller and machines can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        for index in range(GPUS):
            (folder / f"gpu{index}").touch()
        self.conf.write_text(_CONF.format(folder=folder, user=getpass.getuser(), ports=_free_ports(3)))
        (folder / "gres.conf").write_text(f"Name=gpu Type=h100 File={folder}/gpu[0-{GPUS - 1}]\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def run(self, *command: str, given: str = "") -> str:
        """One of Slurm's commands, as a person types it."""
        done = subprocess.run(command, env=self.environment, input=given, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start_controller(self) -> None:
        self._spawn("slurmctld", "slurmctld", "-D")

    def start_machine(self, node: str) -> None:
        self._spawn(node, "slurmd", "-D", "-N", node)

    def stop(self, who: str, sig: signal.Signals = signal.SIGKILL) -> None:
        process = self._running.pop(who)
        process.send_signal(sig)
        process.wait(SECONDS)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            done = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %T"], env=self.environment, capture_output=True, text=True, timeout=60)
            if done.returncode == 0 and sum(line.endswith((" idle", " mixed", " allocated")) for line in done.stdout.splitlines()) == len(NODES):
                return
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
                raise AssertionError(f"Slurm is not ready: {done.stdout}{done.stderr}\n{logs}")
            time.sleep(0.05)

    def close(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            self.run("scancel", "--me")
            deadline = time.monotonic() + SECONDS
            while self.run("squeue", "-h", "--me") and time.monotonic() < deadline:
                time.sleep(0.05)
        for who in list(self._running):
            self.stop(who)

    def _spawn(self, who: str, name: str, *arguments: str) -> None:
        path = program(name)
        assert path is not None
        with (self.folder / f"{who}.log").open("ab") as log:
            self._running[who] = subprocess.Popen([path, *arguments, "-f", str(self.conf)], stdout=log, stderr=log, env=self.environment)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A cluster while the `with` lasts."""
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        cluster = SlurmCluster(Path(folder))
        try:
            cluster.start_controller()
            for node in NODES:
                cluster.start_machine(node)
            cluster.wait_ready()
            yield cluster
        finally:
            cluster.close()
