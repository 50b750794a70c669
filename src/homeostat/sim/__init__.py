"""The whole control plane on a virtual clock, with a seed: real store, API, guards and engine, in a world that fails.

`run(seed)` goes through a storm (see `storm`) and reports; `stories` are told with a death at every step. A failure prints how to see
it again, and that shows the same, step by step. `loop` has the time, the order and the deaths, `server` the API server as a process,
`network` the way to it, `world` the things, `boxes` a composer, `house` puts them together, and `witness` sees all and says what is
wrong. `rehearse` takes providers and composers of your own through such storms.
"""

from homeostat.sim.house import House
from homeostat.sim.rehearsal import Play, rehearse
from homeostat.sim.seeds import Report, run, simulate
from homeostat.sim.storm import Storm, draw

__all__ = ["House", "Play", "Report", "Storm", "draw", "rehearse", "run", "simulate"]
