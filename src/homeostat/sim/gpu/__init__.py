"""The whole GPU service on a virtual clock, with a seed: the real governor under the real gate, the real agents, on machines that fail.

`run(seed)` goes through a storm and reports. `machine` is what really runs on GPUs, `agents` the agents that keep it, `hall` puts all
together, `storm` is what happens, and `witness` sees everything and says what is wrong.
"""

from homeostat.sim.gpu.seeds import GpuReport, run
from homeostat.sim.gpu.storm import GpuStorm, draw

__all__ = ["GpuReport", "GpuStorm", "draw", "run"]
