"""What goes on behind the API: namespaces that empty themselves, dependents that follow their owners, definitions that
become kinds, Secrets that get their tokens, quotas that are counted, events that fade, history that is let go.

Each keeps a set of keys to look at (`worker`) and decides from what the store holds, never from the event that woke it.
"""

from homeostat.api.controllers.accounttokens import AccountTokens
from homeostat.api.controllers.garbage import GarbageCollector
from homeostat.api.controllers.housekeeping import Housekeeping
from homeostat.api.controllers.lifecycle import Lifecycle
from homeostat.api.controllers.roles import RoleAggregation

__all__ = ["AccountTokens", "GarbageCollector", "Housekeeping", "Lifecycle", "RoleAggregation"]
