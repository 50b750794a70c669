"""What would happen: traces replayed in virtual time through the same decisions that govern the real fleet.

    trace = read_philly("philly_jobs.csv").between(0, 7 * 86400)
    result = simulate(trace, policy, even_cluster(trace.tenants, nodes=50))
    compare(trace, fleet, {"ours": policy})          # beside FIFO, priority with backfill, least attained service

`trace` reads and makes traces, `cluster` is what they run on, `engine` lets time pass, `metrics` adds up.
"""

from homeostat.gpu.simulator.cluster import Cluster, even_cluster, make_nodes, make_tenants, read_openb_nodes
from homeostat.gpu.simulator.compare import BASELINES, compare, table
from homeostat.gpu.simulator.engine import Outage, Simulation, Timing, simulate
from homeostat.gpu.simulator.metrics import Result
from homeostat.gpu.simulator.trace import (
    Job,
    Trace,
    TraceError,
    generate,
    read_openb,
    read_philly,
    read_pollux,
    read_trace,
)

__all__ = [
    "BASELINES",
    "Cluster",
    "Job",
    "Outage",
    "Result",
    "Simulation",
    "Timing",
    "Trace",
    "TraceError",
    "compare",
    "even_cluster",
    "generate",
    "make_nodes",
    "make_tenants",
    "read_openb",
    "read_openb_nodes",
    "read_philly",
    "read_pollux",
    "read_trace",
    "simulate",
    "table",
]
