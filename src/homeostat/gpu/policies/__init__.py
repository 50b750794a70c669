"""What the governor goes by, one file a policy, in the order in which they are asked.

`failure` and `ending` say what cannot go on, `idle`, `budget` and `quota` what should not. `fair_share` puts those that wait in order,
`admission` places them and holds GPUs back for the first that do not fit, `preemption` makes room. `cost` keeps fragile work off spot nodes
and picks nodes to give back, `moving` empties them, `backlog` asks for nodes and gives them back, `sla` tells what was not kept.
"""
