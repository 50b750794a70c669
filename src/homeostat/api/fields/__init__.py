"""Who owns which field: `metadata.managedFields`, kept as kube-apiserver keeps it.

`track` follows plain writes, `apply` is server-side apply. Both are pure: objects and schemas in, objects out; time is
handed in. Sets of fields stay in the form they are stored in (`sets`), types say what is owned apart (`types`), and
the walkers find what a change touches (`compare`) and how a configuration goes in (`merge`).
"""

from homeostat.api.fields.apply import apply
from homeostat.api.fields.managed import (
    ALL_BUT_STATUS,
    STATUS_ONLY,
    Only,
    all_but_spec,
    entries_of,
    keep_times,
    put_entries,
    track,
)
from homeostat.api.fields.scale import entries_of_object, entries_of_scale

__all__ = [
    "ALL_BUT_STATUS",
    "STATUS_ONLY",
    "Only",
    "all_but_spec",
    "apply",
    "entries_of",
    "entries_of_object",
    "entries_of_scale",
    "keep_times",
    "put_entries",
    "track",
]
