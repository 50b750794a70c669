"""Git as the source of truth: repositories are followed, their commits rendered, judged and applied, each as one change set.

    GitSource ─▶ fetching: fetch, verify ─▶ rendering: files ─▶ manifests ─▶ synced: validate, declare ─▶ guards ─▶ apply
                    ▲ webhook, interval                                          │
                    └───────────────────── status, plan, history ◀──────────────┘

`repository` is libgit2 without a work tree. `choosing`, `files`, `manifests`, `variables`, `sops`, `kustomize`, `templates` and `rendering`
turn a commit into objects. `synced` stands where a composer's parents stand: it declares the objects of a commit to the engine, which
looks, asks the guards and acts; `writeback` posts how that went as statuses of commits. A commit that cannot be read, rendered or validated changes nothing.
"""

from homeostat.sources.kinds import GIT_SOURCE, GitSourceSpec, SyncSpec

__all__ = ["GIT_SOURCE", "GitSourceSpec", "SyncSpec"]
