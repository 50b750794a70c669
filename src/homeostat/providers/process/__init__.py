"""Processes on this host: so many replicas of a command, kept running as declared.

    apiVersion: processes.homeostat.dev/v1
    kind: Process
    metadata: {name: web}
    spec:
      command: [/srv/web/bin/serve, --port, "8080"]
      env: {LOG_LEVEL: info}
      replicas: 3
      limits: {addressSpace: 512Mi, openFiles: 1024}
      readiness: {exec: {command: [/srv/web/bin/ready]}, periodSeconds: 2}

`Process(state_dir, allowed=…)` runs nothing until it is told that it may: `True` for any command, or the folders that commands may
lie in. Linux only.

The replicas do not need the control plane. Each has a session of its own, no pipe to anybody, and its output in files; whoever
starts next finds them by their records and takes them up again. Three things keep them from being doubled or lost:

- **the gate**: a replica is started behind a closed gate, recorded, and only then let through. When the control plane dies in
  between, the gate never opens and the replica ends before it began: what runs is recorded;
- **identity**: a process is its pid, its start time and the boot that it belongs to, held by a pidfd. A reused pid is another process;
- **the mark**: each carries `HOMEOSTAT_REPLICA=uid/index/nonce` in its environment. So it is found again where a record got lost,
  and so is what a dead replica left behind.

A replica that dies is seen at once and is drift: the loop restarts it, through the gate of the guards. One that dies again and
again waits longer each time; meanwhile it is not drift but unhealthy, and says so. A new definition goes out one replica at a time,
and stops at the first that does not come up.

Read `kind` for what can be declared, `places` for what is decided (all of it pure), `record` for what is kept, `kernel` for what
the kernel tells, `launch`, `slot` and `logs` for what is done, `health` for probes, `provider` for the whole.
"""

from homeostat.providers.process.kind import ProcessSpec, ProcessState
from homeostat.providers.process.provider import Process

__all__ = ["Process", "ProcessSpec", "ProcessState"]
