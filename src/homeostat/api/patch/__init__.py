"""The three patches that change a stored object: JSON patch, merge patch, strategic merge patch.

Each takes the document and the decoded patch and returns a new document. Neither input is changed; what the patch does
not touch is shared, so the result must be treated as frozen wherever the document is. `refusals` words what is wrong.
"""

from homeostat.api.patch.json_patch import apply_json_patch, unknown_operation_fields
from homeostat.api.patch.merge_patch import apply_merge_patch
from homeostat.api.patch.strategic import apply_strategic_merge_patch

__all__ = ["apply_json_patch", "apply_merge_patch", "apply_strategic_merge_patch", "unknown_operation_fields"]
