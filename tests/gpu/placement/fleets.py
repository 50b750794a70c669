"""Small fleets and traces, generated."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement import Pod, Room
from homeostat.gpu.snapshot import ANY_MODEL

CORE, GIB = 1000, 1024


def fleet(*nodes: tuple[int, int, int, int]) -> Room:
    """Nodes by cores, GiB, GPUs and model."""
    cpu, memory, gpus, model = np.array(nodes, dtype=np.int64).T
    devices = np.where(np.arange(gpus.max()) < gpus[:, None], WHOLE, -1)
    return Room(cpu * CORE, memory * GIB, devices, model.copy())


def pod(cores: int = 0, gib: int = 0, gpus: float = 0, models: int = ANY_MODEL) -> Pod:
    """By cores, GiB, and GPUs, whole or a fraction."""
    if 0 < gpus < 1:
        return Pod(cores * CORE, gib * GIB, 1, round(gpus * WHOLE), models)
    return Pod(cores * CORE, gib * GIB, int(gpus), WHOLE, models)


MIXED = ((96, 384, 8, 0),) * 12 + ((104, 512, 2, 1),) * 8 + ((16, 120, 2, 2),) * 6

SHAPES = (
    (pod(3, 5, 0.81), 16),
    (pod(11, 47, 0.47), 12),
    (pod(4, 22, 0.32), 6),
    (pod(12, 46, 0.65), 4),
    (pod(4, 30, 0.16), 3),
    (pod(11, 48, 1), 30),
    (pod(19, 63, 1), 6),
    (pod(3, 5, 1), 8),
    (pod(12, 64, 1, models=0b010), 3),
    (pod(64, 300, 8), 1),
    (pod(16, 50), 12),
)


def trace(room: Room, demand: float, seed: int) -> list[Pod]:
    """Pods drawn at random until they ask for this many times the fleet's GPUs."""
    random = np.random.default_rng(seed)
    pods = [each for each, _ in SHAPES]
    weight = np.array([count for _, count in SHAPES], dtype=float)
    asked, most, sequence = 0, demand * room.free, []
    while asked < most:
        sequence.append(pods[random.choice(len(pods), p=weight / weight.sum())])
        asked += sequence[-1].total
    return sequence
