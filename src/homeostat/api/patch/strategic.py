"""Strategic merge patch: a merge patch that knows from the type which lists merge, and by which key.

The patch may carry directives: `$patch` (`replace` or `delete`, in a map or an item of a merging list), `$retainKeys`,
`$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from homeostat.api.patch.merge_patch import without_nulls
from homeostat.api.patch.refusals import Json, not_an_object, rejected
from homeostat.api.wording import plain, type_word
from homeostat.model.errors import bad_request
from homeostat.model.schema import ANY, Schema

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
ELEMENT_ORDER = "$setElementOrder"

Items = list[Any]


def apply_strategic_merge_patch(document: Json, patch: Any, schema: Schema) -> Json:
    """The document after the patch, by the merge keys and strategies of `schema`; untouched parts are shared.

    Like kube-apiserver it leaves `null` and directives in values that it takes over whole (items that are new in a
    list, replaced maps): decode the result as the kind's type does, where null means absent and unknown fields are
    dropped. Raises 400 for a patch that makes no sense, 422 for lists of lists.
    """
    if patch is None:
        return document
    if not isinstance(patch, dict):
        raise not_an_object(patch)
    return _merge_map(document, patch, schema)


def _merge_map(original: Json, patch: Json, schema: Schema) -> Json:
    if DIRECTIVE in patch:
        return _directed_map(patch)
    result = dict(original)
    if RETAIN_KEYS in patch:
        patch = _retain_keys(result, patch)
    ordered = _merge_ordered_lists(result, patch, schema)
    for key, value in patch.items():
        if key in ordered:
            continue
        field, deletes = key, False
        if key.startswith(DELETE_FROM):
            field, deletes = _field_of(key, DELETE_FROM, "invalid patch format of primitive list"), True
        if value is None:
            result.pop(field, None)
            continue
        current = result.get(field)
        if isinstance(current, dict) and isinstance(value, dict):
            result[field] = _merge_field(current, value, _child(schema, field))
        elif isinstance(current, list) and isinstance(value, list):
            result[field] = _merge_list_field(current, value, _child(schema, field), deletes)
        elif not deletes:
            _take(result, field, value)
    return result


def _directed_map(patch: Json) -> Json:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    raise bad_request(f"unknown patch type: {plain(directive)} in map: {plain(patch)}")


def _child(schema: Schema, field: str) -> Schema:
    return schema.child(field) or ANY


def _take(result: Json, field: str, value: Any) -> None:
    """A value for which there is nothing to merge with: taken without its nulls and directives."""
    if isinstance(value, dict) and DIRECTIVE in value:
        result.pop(field, None)
    else:
        result[field] = _without_directives(without_nulls(value))


def _merge_field(current: Json, value: Json, schema: Schema) -> Json:
    return value if "replace" in schema.merge_strategy else _merge_map(current, value, schema)


def _merge_list_field(current: Items, value: Items, schema: Schema, deletes: bool) -> Items:
    """Lists that do not merge are replaced; a list of deletions works on any."""
    if deletes or "merge" in schema.merge_strategy:
        return _merge_list(current, value, schema, deletes)
    return value


def _retain_keys(result: Json, patch: Json) -> Json:
    """Drops from `result` what the directive does not name; returns the patch without the directive."""
    names = patch[RETAIN_KEYS]
    patch = {key: value for key, value in patch.items() if key != RETAIN_KEYS}
    bad = bad_request("invalid patch format of retainKeys")
    if not isinstance(names, list):
        raise bad
    retained = {name for name in names if isinstance(name, str)}
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE_FROM, ELEMENT_ORDER)) and key not in retained:
            raise bad
    for key in [key for key in result if key not in retained]:
        del result[key]
    return patch


def _field_of(key: str, prefix: str, problem: str) -> str:
    head, slash, field = key.partition("/")
    if not slash or head != prefix:
        raise bad_request(problem)
    return field


def _merge_ordered_lists(result: Json, patch: Json, schema: Schema) -> set[str]:
    """Merges the lists whose order the patch states; returns the patch's keys that are dealt with."""
    done: set[str] = set()
    for key, order in patch.items():
        if not key.startswith(ELEMENT_ORDER):
            continue
        _expect_list(order)
        field = _field_of(key, ELEMENT_ORDER, "invalid patch format of setElementOrder list")
        done.add(key)
        child = _child(schema, field)
        merge_key = child.merge_key
        current, value = result.get(field, []), patch.get(field, [])
        _expect_list(current)
        _expect_list(value)
        _check_order(value, order, merge_key)
        if field in result and field in patch:
            merged = _merge_list_field(current, value, child, False)
        elif field in patch:
            merged = _without_directives(value)
        elif field in result:
            merged = current
        else:
            continue
        _element_type(current, value)
        result[field] = _in_order(merged, order, current, merge_key)
        done.add(field)
    return done


def _expect_list(value: Any) -> None:
    if not isinstance(value, list):
        raise bad_request(f"expected a []interface {{}}, but received a {type_word(value)}")


def _check_order(value: Items, order: Items, merge_key: str) -> None:
    """The patch's own items must stand in the stated order; deletions and other directives do not count."""
    if not value or not order:
        return
    if merge_key:
        for item in value:
            _expect_map(item)
        value = [item for item in value if DIRECTIVE not in item]
    ranks = iter(_key(item, merge_key) for item in order)
    if not all(_key(item, merge_key) in ranks for item in value):
        raise bad_request(
            f"The order in patch list:\n{plain(value)}\n doesn't match {ELEMENT_ORDER} list:\n{plain(order)}\n"
        )


def _expect_map(item: Any) -> None:
    if not isinstance(item, dict):
        raise bad_request(f"expected a map[string]interface {{}}, but received a {type_word(item)}")


def _key(item: Any, merge_key: str) -> tuple[type, Any]:
    """What identifies an item of a merging list: the value of its merge key, or a plain item itself."""
    if merge_key:
        _expect_map(item)
        if merge_key not in item:
            raise bad_request(f"map: {plain(item)} does not contain declared merge key: {merge_key}")
        item = item[merge_key]
    if isinstance(item, (dict, list)):
        raise bad_request(f"expected a string, but received a {type_word(item)}")
    return type(item), item  # 1, 1.0 and true are three keys


def _merge_list(original: Items, patch: Items, schema: Schema, deletes: bool) -> Items:
    if not original and not patch:
        return original
    if _element_type(original, patch) is not dict:
        if deletes:
            gone = {_key(item, "") for item in patch}
            return [item for item in original if _key(item, "") not in gone]
        return _in_order(_unique([*original, *patch]), patch, original, "")
    merge_key = schema.merge_key
    if not merge_key:
        raise bad_request("cannot merge lists without merge key for struct")
    original, patch = _directed_items(original, patch, merge_key)
    return _in_order(_merge_items(original, patch, merge_key, schema), patch, original, merge_key)


def _element_type(*lists: Items) -> type:
    types = {type(item) for items in lists for item in items}
    if list in types:
        raise rejected("lists of lists are not supported")
    if len(types) > 1 or type(None) in types:
        raise bad_request(f"list element types are not identical: {plain(list(lists))}")
    return types.pop() if types else dict


def _unique(items: Items) -> Items:
    return list({_key(item, ""): item for item in items}.values())


def _directed_items(original: Items, patch: Items, merge_key: str) -> tuple[Items, Items]:
    """Obeys the items with a `$patch`; returns the two lists that are left to merge."""
    kept: Items = []
    gone: set[tuple[type, Any]] = set()
    replace = False
    for item in patch:
        directive = item.get(DIRECTIVE, kept)  # `kept` stands for absent: a directive may be null
        if directive is kept:
            kept.append(item)
        elif directive == "delete":
            gone.add(_key(item, merge_key))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise bad_request("merging lists cannot yet be specified in the patch")
        else:
            raise bad_request(f"unknown patch type: {plain(directive)} in map: {plain(item)}")
    if replace:
        return kept, []
    if gone:
        original = [item for item in original if merge_key not in item or _key(item, merge_key) not in gone]
    return original, kept


def _merge_items(original: Items, patch: Items, merge_key: str, schema: Schema) -> Items:
    merged = list(original)
    places: dict[tuple[type, Any], int] = {}
    for place, item in enumerate(merged):
        places.setdefault(_key(item, merge_key), place)
    for item in patch:
        place = places.setdefault(_key(item, merge_key), len(merged))
        if place < len(merged):
            merged[place] = _merge_map(merged[place], item, schema.items or ANY)
        else:
            merged.append(item)
    return merged


def _in_order(merged: Items, order: Items, server: Items, merge_key: str) -> Items:
    """The items as the patch orders them, the others where they stood before, as far as both can be had."""
    ranks = _ranks(order, merge_key)
    places = _ranks(server, merge_key)
    keyed = [(_key(item, merge_key), item) for item in merged]
    ours = sorted((pair for pair in keyed if pair[0] in ranks), key=lambda pair: ranks[pair[0]])
    others = sorted((pair for pair in keyed if pair[0] not in ranks), key=lambda pair: places.get(pair[0], -1))
    result: Items = []
    left = iter(others)
    pending = next(left, None)
    for key, item in ours:
        while pending is not None and key in places and places.get(pending[0], len(places)) < places[key]:
            result.append(pending[1])
            pending = next(left, None)
        result.append(item)
    if pending is not None:
        result.append(pending[1])
        result.extend(item for _, item in left)
    return result


def _ranks(items: Iterable[Any], merge_key: str) -> dict[tuple[type, Any], int]:
    ranks: dict[tuple[type, Any], int] = {}
    for rank, item in enumerate(items):
        ranks.setdefault(_key(item, merge_key), rank)
    return ranks


def _without_directives(value: Any) -> Any:
    """Drops what is marked with a `$patch`, at any depth; other directives stay and are refused as unknown fields."""
    if isinstance(value, dict):
        return {key: _without_directives(inner) for key, inner in value.items() if not _is_directed(inner)}
    if isinstance(value, list):
        return [_without_directives(inner) for inner in value if not _is_directed(inner)]
    return value


def _is_directed(value: Any) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value
