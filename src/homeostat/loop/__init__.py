"""The loop: observe, compare, decide, act, for any kind of thing, until what is matches what was declared.

Read the folder in that order. `observation` is what was seen of the world, `compare` what differs and why, `fleet` the open
differences with the whole fleet in view, and what a guard says of them; `ledger` has them of all fleets, and `acting` is what becomes of
those that are let through. `provider` and `compose` are what users write, in two forms; `controller`, `children` and `engine` run them.
Whoever wants to know what happens is a `listener`: `metrics`, `logs`; `tracing` has the phases as spans.
"""
