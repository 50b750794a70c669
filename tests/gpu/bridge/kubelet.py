"""A kubelet for tests: runs the commands of Pods as real processes of this machine, and tells of them as a kubelet does.

What the API server of a cluster does beyond ours is done here: on deletion a Pod has the grace of its spec, for ours knows none. What a
finalizer holds stays until that is gone, on both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

from homeostat.client import Client, Key
from homeostat.gpu.bridge.kubernetes.reading import asked_for
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
_VARIABLE = re.compile(r"\$(\$)?\(([A-Za-z_][A-Za-z0-9_]*)\)")


class Kubelet:
    """A node with GPUs. Use it as `async with`; what it runs ends with it."""

    def __init__(self, client: Client, name: str, folder: Path, gpus: int = 8) -> None:
        self.name, self.gpus = name, gpus
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        """By name of the Pod, those that live."""
        self.began: list[str] = []
        """Names of the Pods whose command was begun, in that order."""
        self._nodes = client.kind("v1", "Node")
        self._pods = client.kind("v1", "Pod")
        self._informer = self._pods.informer(fields=f"spec.nodeName={name}")
        self._folder = folder
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Event] = {}

    async def __aenter__(self) -> Kubelet:
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559", "kubernetes.io/hostname": self.name}
        await self._nodes.create({"metadata": {"name": self.name, "labels": labels}})
        await self._nodes.patch(self.name, {"spec": {"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]}})
        await self.tell(ready=True)
        await self._informer.__aenter__()
        self._informer.subscribe(self._changed)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._informer.stop()
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def tell(self, *, ready: bool) -> None:
        """Says whether the node is ready."""
        has = {"cpu": "64", "memory": "1000Gi", GPU: str(self.gpus)}
        condition = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "Test", "lastTransitionTime": Clock().timestamp()}
        status = {"capacity": has, "allocatable": has, "conditions": [condition]}
        await self._nodes.patch(self.name, {"status": status}, subresource="status")

    def _changed(self, key: Key) -> None:
        pod = self._informer.get(key.name, key.namespace)
        if pod is None:
            return
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp") and name in self._leaving:
            self._leaving[name].set()
        if name not in self._tasks and (pod.get("status") or {}).get("phase") == "Pending" and not pod["metadata"].get("deletionTimestamp"):
            self._leaving[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._run(pod))

    async def _run(self, pod: Object) -> None:
        taken = sum(asked_for(one, GPU) for one in self._informer.all() if one["metadata"]["name"] in self.processes)
        if taken + asked_for(pod, GPU) > self.gpus:
            await self._say(pod, "Failed", reason=f"OutOf{GPU}", message=f"Node didn't have enough resource: {GPU}")
            return
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        env = {"PATH": os.environ["PATH"]}
        for one in container.get("env", ()):
            env[one["name"]] = _expanded(one.get("value", ""), env)
        command = [_expanded(word, env) for word in (*container["command"], *container.get("args", ()))]
        log = self._folder / f"{name}.log"
        began = Clock().timestamp()
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, cwd=container.get("workingDir") or "/", start_new_session=True
            )
        self.processes[name] = process
        self.began.append(name)
        await self._say(pod, "Running", {"running": {"startedAt": began}})
        code = await self._ended(process, name, pod["spec"]["terminationGracePeriodSeconds"])
        del self.processes[name]
        message = log.read_text()[-2048:] if code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError" else ""
        exit_code = code if code >= 0 else 128 - code
        state = {"exitCode": exit_code, "reason": "Error" if code else "Completed", "message": message, "startedAt": began, "finishedAt": Clock().timestamp()}
        await self._say(pod, "Failed" if code else "Succeeded", {"terminated": state})
        if self._leaving[name].is_set():
            with contextlib.suppress(ApiError):
                await self._pods.delete(name, namespace=pod["metadata"]["namespace"], grace_seconds=0)

    async def _ended(self, process: asyncio.subprocess.Process, name: str, grace: float) -> int:
        ending, leaving = asyncio.create_task(process.wait()), asyncio.create_task(self._leaving[name].wait())
        await asyncio.wait({ending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not ending.done():
            process.terminate()
            await asyncio.wait({ending}, timeout=grace)
            if not ending.done():
                os.killpg(process.pid, signal.SIGKILL)
        return await ending

    async def _say(self, pod: Object, phase: str, state: Object | None = None, **more: str) -> None:
        status: Object = {"phase": phase, **more}
        if state is not None:
            container = pod["spec"]["containers"][0]
            running = "running" in state
            said = {"name": container["name"], "image": container["image"], "imageID": "", "ready": running, "restartCount": 0, "state": state}
            status["containerStatuses"] = [said]
        with contextlib.suppress(ApiError):
            await self._pods.patch(pod["metadata"]["name"], {"status": status}, namespace=pod["metadata"]["namespace"], subresource="status")


def _expanded(word: str, env: dict[str, str]) -> str:
    """As a kubelet does: `$(NAME)` is a variable, `$$(NAME)` is not."""
    return _VARIABLE.sub(lambda found: found[0][1:] if found[1] else env.get(found[2], found[0]), word)
