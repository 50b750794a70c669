"""The Pod of a replica. It goes straight to its node: the governor is its scheduler."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec

from homeostat.gpu.agent.wanted import farewell
from homeostat.gpu.bridge.cluster import Mark, Order
from homeostat.gpu.bridge.environment import environment, refuse_nul
from homeostat.gpu.bridge.models import Models
from homeostat.loop.provider import Refused

Object = dict[str, Any]

MANAGED = "app.kubernetes.io/managed-by"
MANAGER = "homeostat-bridge"
MARK = "gpu.homeostat.dev/mark"
"""Annotation: which start of which replica it is."""
FINALIZER = "gpu.homeostat.dev/told"
"""Held until it is written down how a Pod ended: without it nobody would know of one that was deleted."""
GPU = "nvidia.com/gpu"
CONTAINER = "main"


class Options(msgspec.Struct, frozen=True):
    """What a person says of a cluster."""

    namespace: str = "default"
    """Where Pods are made."""
    image: str = ""
    """For workloads that name none."""
    resource: str = GPU
    """What the device plugin calls its GPUs."""
    selector: str = ""
    """Labels of the nodes that are kept. Default: all that have GPUs."""
    template: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """A Pod that others are made after: volumes, tolerations, a service account. Its first container is that of the replica."""
    models: Models = msgspec.field(default_factory=Models)


def name_of(mark: Mark) -> str:
    """The name of its Pod: no two starts have the same, so that none is made twice."""
    return f"homeostat-{mark.uid}-{mark.replica}-{mark.attempt}-{mark.start}-{zlib.crc32(mark.node.encode()):08x}"


def pod_of(order: Order, options: Options) -> Object:
    """The Pod of a start. `Refused` says what is wrong with it, and what to do."""
    mark, workload, spec = order.mark, order.workload, order.workload.spec
    sig, grace = farewell(workload)
    if sig != "SIGTERM":
        raise Refused(f"Kubernetes tells a Pod to end by SIGTERM, and not by {sig}: say that in spec.preemption.signal")
    template = deepcopy(dict(options.template))
    base = template.get("spec") or {}
    containers = base.get("containers") or [{}]
    image = spec.image or containers[0].get("image") or options.image
    if not image:
        raise Refused("the workload names no image: say one in spec.image, or start the bridge with --image")
    if spec.working_dir and not spec.working_dir.startswith("/"):
        raise Refused(f"the working directory {spec.working_dir} must begin with a slash")
    env = environment(spec.env, order.env, "KUBERNETES_")
    refuse_nul(*spec.command, *env.values(), spec.working_dir)
    container = {
        **containers[0],
        "name": containers[0].get("name") or CONTAINER,
        "image": image,
        "command": [_plain(word) for word in spec.command],
        "env": [*(containers[0].get("env") or ()), *({"name": name, "value": _plain(value)} for name, value in env.items())],
        "resources": _resources(order, options),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **({"workingDir": spec.working_dir} if spec.working_dir else {}),
    }
    container.pop("args", None)
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(mark),
            "namespace": options.namespace,
            "labels": {**(metadata.get("labels") or {}), MANAGED: MANAGER, "gpu.homeostat.dev/workload": workload.name[:63].rstrip("-.")},
            "annotations": {**(metadata.get("annotations") or {}), MARK: str(mark)},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "automountServiceAccountToken": False,
            **base,
            "containers": [container, *containers[1:]],
            "nodeName": order.member.id,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": max(1, math.ceil(grace)),
            "tolerations": [*(base.get("tolerations") or ()), {"key": options.resource, "operator": "Exists"}],
        },
    }


def _resources(order: Order, options: Options) -> Object:
    needs, count = order.workload.spec.resources, len(order.place.gpus)
    asked = {"cpu": f"{needs.cpu_milli}m"} if needs.cpu_milli else {}
    asked |= {"memory": f"{needs.memory_mib}Mi"} if needs.memory_mib else {}
    gpus = {options.resource: str(count)} if count else {}
    return {"limits": gpus, "requests": {**asked, **gpus}}


def _plain(word: str) -> str:
    """A word as it is: `$(NAME)` in a Pod means a variable."""
    return word.replace("$(", "$$(")
