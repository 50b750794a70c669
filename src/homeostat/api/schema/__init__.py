"""What a type says about an object: pruning, defaults, validation, and the checks of the types that users bring.

Custom objects: `prune`, then `default`, then `validate`. Built-in ones: `decode_errors`. All: `validate_metadata`.
A CustomResourceDefinition itself: `default_crd`, then `check_crd`.
"""

from homeostat.api.schema.crd import check_crd, check_crd_status, default_crd, format_warnings
from homeostat.api.schema.decode import decode_errors, metadata_type_error
from homeostat.api.schema.defaulting import FILL_LIMIT, default
from homeostat.api.schema.embedded import embedded_type_error
from homeostat.api.schema.jsonpath import BadPath, compile_path
from homeostat.api.schema.metadata import FOREGROUND, IMMUTABLE, MANAGER_MAX, ORPHAN, validate_metadata
from homeostat.api.schema.nulls import Place, refused_nulls
from homeostat.api.schema.prune import prune
from homeostat.api.schema.unmoved import refit
from homeostat.api.schema.validate import NOTHING, Fitting, known_light, validate

__all__ = [
    "FILL_LIMIT",
    "FOREGROUND",
    "IMMUTABLE",
    "MANAGER_MAX",
    "NOTHING",
    "ORPHAN",
    "BadPath",
    "Fitting",
    "Place",
    "check_crd",
    "check_crd_status",
    "compile_path",
    "decode_errors",
    "default",
    "default_crd",
    "embedded_type_error",
    "format_warnings",
    "known_light",
    "metadata_type_error",
    "prune",
    "refit",
    "refused_nulls",
    "validate",
    "validate_metadata",
]
