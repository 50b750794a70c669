"""Admission policies: what people demand of writes, in CEL (`ValidatingAdmissionPolicy`), and where they demand it (its bindings).

A write that is otherwise right is held against every policy that is bound and means it (`matching`), with the parameters that its
binding names (`params`). What the policy says of it (`policy`, by expressions over `environment`) is done as the binding says (`admit`):
refused, warned about, noted in the audit log. `access` sees to it that nobody reads through a policy what they may not read. While
nothing is bound, a write pays for one look at `Policies.active`.
"""

from homeostat.api.policies.access import check_param_access
from homeostat.api.policies.admit import Policies
from homeostat.api.policies.matching import GROUP

__all__ = ["GROUP", "Policies", "check_param_access"]
