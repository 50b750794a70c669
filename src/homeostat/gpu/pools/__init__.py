"""Node pools: how nodes are had and given back, and what is written down so that none is had twice.

    governor ─▶ wishes ─▶ NodePool.wanted ─▶ guards ─▶ NodePool.apply ─▶ a way: get
                     └──▶ GpuNode.wanted ──▶ guards ─▶ GpuNode.apply ──▶ cordon, drain, a way: give back

A way is a file of its own: `exec`, `webhook`, `simulated`; `ways` says what they have in common. `books` is what a pool was asked for, in its
status. `standing` is the pure part, `wishes` what the governor last decided, `provider` the NodePool that the loop keeps. The GpuNode is in
`gpu/controller/nodes`.
"""
