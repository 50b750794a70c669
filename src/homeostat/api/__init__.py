"""The Kubernetes-compatible server: from a request to an answer, and what goes on behind.

- **The way in**: `http` (or `local`, in process) → `request` → `plane`, which finds the user, asks for the right and
  hands a `call` to the verb that `route` names. `server` puts all of it together with a data directory and
  certificates.
- **The verbs**: `read`, `watch`, `write`, `delete`, `scale`, `answers` (kinds that are answered and not stored),
  `hosted` (what a pod would offer), `documents` (what the server says about itself, with `discovery` and `openapi/`).
- **A write**: `intake` and `patching` make an object of what was sent, `schema/`, `cel/` and `builtin/` judge it,
  `fields/` keeps who manages what, `patch/` has the patches, `admission` looks at namespace and quota, `apart` keeps
  large ones off the event loop.
- **Kinds**: `resource` says what a kind is, `registry` which are served, `builtin/` has those of every Kubernetes API,
  `crds` the kind that declares others, `codec` how objects lie in the store and leave it.
- **Forms**: `accept` reads what is asked for, `shape` and `table` give it, `select` finds which objects, `negotiate`
  turns answers into YAML and rows, `wording` has the words of Go.
- **Who, and what they did**: `auth/`, `audit`, `metrics`.
- **Behind**: `follow` tells of each change, `controllers/` act on it.

Other rooms need four names: `Server` and `Listen` of `server`, `ControlPlane` of `plane`, `local_client` of `local`.
They are imported from there: a command that asks for the version should not load the server.
"""
