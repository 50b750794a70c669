"""Who calls, and what they may do.

The way of a request: `authenticate` finds the user (client certificate, user token or service account token),
`impersonate` lets them act as another where they may, `rbac` decides by roles and bindings, `escalation` keeps anyone
from granting what they do not hold. `pki` makes the certificates, `reviews` answers questions about all this,
`bootstrap` holds the roles that every new control plane begins with.

Deny is the default everywhere: what is not proven is nobody, what is not granted is refused.
"""

from homeostat.api.auth.authenticate import Authenticator, Peer
from homeostat.api.auth.rbac import Attributes, Decision, Rbac, denied
from homeostat.api.auth.user import User

__all__ = ["Attributes", "Authenticator", "Decision", "Peer", "Rbac", "User", "denied"]
