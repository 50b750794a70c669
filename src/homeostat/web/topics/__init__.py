"""What a page can ask to hear of: one file a topic, each an asynchronous generator of what to tell, until nobody listens."""

from homeostat.web.topics.asif import as_if_let_go
from homeostat.web.topics.audit import audit
from homeostat.web.topics.changesets import changeset, changesets
from homeostat.web.topics.events import events
from homeostat.web.topics.explain import explain
from homeostat.web.topics.family import whole_family
from homeostat.web.topics.fleet import fleet
from homeostat.web.topics.gpu import gpu, workload
from homeostat.web.topics.guards import guards
from homeostat.web.topics.object import one_object
from homeostat.web.topics.rows import rows
from homeostat.web.topics.trips import limit_trips

TOPICS = {
    "as-if": as_if_let_go,
    "audit": audit,
    "changeset": changeset,
    "changesets": changesets,
    "events": events,
    "explain": explain,
    "family": whole_family,
    "fleet": fleet,
    "gpu": gpu,
    "gpu-workload": workload,
    "guards": guards,
    "object": one_object,
    "rows": rows,
    "trips": limit_trips,
}
