"""OpenAPI v2 and v3 documents: how `kubectl explain`, `apply` and client generators learn the types and operations."""

from homeostat.api.openapi.documents import V2_PROTOBUF, OpenApi, negotiate_v2, negotiate_v3

__all__ = ["V2_PROTOBUF", "OpenApi", "negotiate_v2", "negotiate_v3"]
