"""Fragmentation Gradient Descent (USENIX ATC '23) as its authors ran it, to show that our experiment is theirs.

A node's fragmentation is the GPU on it that a pod drawn from the workload could not use, on average. A pod goes where it grows least,
in whole percent of a sigmoid; ties go to the first node. The workload is known beforehand: its most common requests, 95 % of all pods.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement import Placement, Pod, Room

POPULAR = 0.95
REFUSED = -1


class Fgd:
    """Places pods by fragmentation. What each request scores on each node is kept, and renewed for the node that changed."""

    def __init__(self, room: Room, workload: list[Pod]) -> None:
        self.room = room
        typical: list[tuple[Pod, int]] = []
        for pod, count in Counter(pod._replace(memory=0) for pod in workload).most_common():
            if sum(each for _, each in typical) >= POPULAR * len(workload):
                break
            typical.append((pod, count))
        with_gpus = [(pod, count) for pod, count in typical if pod.gpus]
        self.cpu, _, self.gpus, self.milli, self.models = np.array([pod for pod, _ in with_gpus], dtype=np.int64).T
        self.weight = np.array([count for _, count in with_gpus]) / sum(count for _, count in typical)
        self.shapes = {pod: row for row, pod in enumerate(dict.fromkeys(workload))}
        self.scores = np.empty((len(self.shapes), len(room)), dtype=np.int64)
        self.devices = np.zeros((len(self.shapes), len(room)), dtype=np.int64)
        self.seen: dict[tuple[int, ...], NDArray[np.int64]] = {}
        for node in range(len(room)):
            self.score(node)

    def place(self, pod: Pod) -> bool:
        row = self.shapes[pod]
        node = int(self.scores[row].argmax())
        if self.scores[row, node] == REFUSED:
            return False
        free = self.room.gpus[node]
        gpus = (int(self.devices[row, node]),) if pod.gpus == 1 else tuple(np.flatnonzero(free == WHOLE)[: pod.gpus].tolist())
        self.room.take(pod, Placement(node, gpus))
        self.score(node)
        return True

    def score(self, node: int) -> None:
        room = self.room
        state = (int(room.cpu[node]), int(room.memory[node]), int(room.model[node]), *room.gpus[node].tolist())
        if state not in self.seen:
            self.seen[state] = self.score_state(state[0], state[1], state[2], room.gpus[node])
        self.scores[:, node], self.devices[:, node] = self.seen[state]

    def score_state(self, cpu: int, memory: int, model: int, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """A row of scores, and one of devices: each request on each device that differs, then the best of them."""
        free = np.maximum(devices, 0)
        rows, on, left, after = [], [], [], []
        for pod, row in self.shapes.items():
            if cpu < pod.cpu or memory < pod.memory or (pod.gpus and not pod.models >> model & 1):
                continue
            for device, rest in self.choices(pod, free):
                rows.append(row)
                on.append(device)
                left.append(cpu - pod.cpu)
                after.append(rest)
        result = np.zeros((2, len(self.shapes)), dtype=np.int64)
        result[0] = REFUSED
        if rows:
            grown = self.fragmentation(np.array([cpu, *left]), np.stack([free, *after]), model)
            scores = (100 / (1 + np.exp((grown[1:] - grown[0]) / WHOLE))).astype(np.int64)
            for row, device, score in zip(rows, on, scores.tolist(), strict=True):
                if score > result[0, row]:
                    result[:, row] = score, device
        return result

    def choices(self, pod: Pod, free: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
        """The first of the devices that are alike, and what is then free."""
        if pod.milli < WHOLE:
            first = {int(rest): device for device, rest in reversed(list(enumerate(free.tolist()))) if rest >= pod.milli}
            taken = [(device,) for device in sorted(first.values())]
        else:
            whole = np.flatnonzero(free == WHOLE)[: pod.gpus].tolist()
            taken = [tuple(whole)] if len(whole) == pod.gpus else []
        result = []
        for gpus in taken:
            after = free.copy()
            after[list(gpus)] -= pod.milli
            result.append((gpus[0] if gpus else 0, after))
        return result

    def fragmentation(self, cpu: NDArray[np.int64], free: NDArray[np.int64], model: int) -> NDArray[np.float64]:
        """Of states, a row each: the GPU that the typical pod could not use."""
        fits = free[:, None, :] >= self.milli[:, None]
        usable = (cpu[:, None] >= self.cpu) & (fits.sum(axis=2) >= self.gpus) & ((self.models >> model) & 1 == 1)
        return free.sum(axis=1) - (usable * (fits * free[:, None, :]).sum(axis=2)) @ self.weight
