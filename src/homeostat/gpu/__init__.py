"""GPU as a service: tenants, nodes, jobs, and a governor that keeps them as declared on a shared fleet.

`kinds` is what people declare. `snapshot` is all of it at one moment as arrays, `policies` decide on it, one file each, and `governor`
puts them in order: a pure function from a snapshot to decisions, each with its reason. `placement` finds the GPUs. `agent` runs on
every machine. `simulator` replays traces through the same decisions in virtual time.
"""

GROUP, VERSION = "gpu.homeostat.dev", "v1alpha1"
