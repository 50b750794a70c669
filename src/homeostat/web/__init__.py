"""The dashboard, served by the control plane at `/ui`: what drifts, what the loop does about it, what it refuses and why.

The page is plain files (`static/`), no build step, no other host. It asks the Kubernetes API like every client, with the token of who
is signed in; and `/ui/stream` for what it shows live: one connection for all topics of a view, because browsers open few. `board`
keeps what all viewers share, in small rows, and only while somebody looks; each gets what RBAC lets them see. Nothing here acts: a
button is a write to the API by the person who pressed it.

`children` is for plans: `/homeostat/children` tells what composers in this process would make of a change.
"""
