"""The whole control plane on a virtual clock, with a seed: real store, API, guards and engine, in a world that fails.

`run(seed)` goes through a storm (see `storm`) and reports. A failure prints its seed, and `python -m homeostat.sim --seed N` shows the
same again, step by step the same. `loop` has the time, the order and the deaths, `network` the way to the API server, `world` the
things, and `house` puts them together.
"""

from homeostat.sim.house import House
from homeostat.sim.seeds import Report, run, simulate
from homeostat.sim.storm import Storm, draw

__all__ = ["House", "Report", "Storm", "draw", "run", "simulate"]
