"""How a patch is refused, in upstream's words."""

from __future__ import annotations

from typing import Any

from homeostat.api.wording import json_word
from homeostat.model.errors import ApiError, bad_request

Json = dict[str, Any]


def not_an_object(patch: Any, prefix: str = "") -> ApiError:
    """400: the body of a merge patch must be a JSON object."""
    problem = f"cannot unmarshal {json_word(patch)} into Go value of type map[string]interface {{}}"
    return bad_request(f"{prefix}json: {problem}")


def rejected(why: str) -> ApiError:
    """422 in upstream's general words; the cause says what was wrong, for the person who has to mend the patch."""
    message = "the server rejected our request due to an error in our request"
    cause = {"reason": "FieldValueInvalid", "message": f"{message}: {why}", "field": "patch"}
    return ApiError(422, "Invalid", message, causes=[cause])
