"""The governor in the loop: what it decides goes through the same gate and guards as all else.

    declared, reported ─▶ governing: snapshot ─▶ decide ─▶ wishes ─▶ Workload.wanted ─▶ guards ─▶ Workload.apply ─▶ agents
                              ▲                                                                                        │
                              └──────────────────────────────── status.reports ◀──────────────────────────────────────┘

`standing` holds the pure part: how a workload stands by its status and the reports of agents, and what a decision makes of it.
`governing` follows all that is declared and runs the governor. `workload` is the provider that the loop keeps. `telling` writes down
what nobody acts on: why something waits, and how tenants stand.
"""

from homeostat.gpu.controller.workload import Workload

__all__ = ["Workload"]
