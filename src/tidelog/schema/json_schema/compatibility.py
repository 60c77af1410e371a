"""Whether every value that one JSON Schema lets through is let through by another, as registries answer it.

The rules go by the kind of schema (`shape.py`) and by *content models*: an object is open when it takes properties that
it does not name, closed when it takes none, and partly open when it takes those that fit a schema. A property that is
new to an open object is a conflict: data may have had it with any type.

The walk assumes that a pair which it is in the middle of fits. Where that turned out wrong it starts over, knowing so,
until nothing new turns up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidelog.schema.bounds import REASONS_MAX, Budget
from tidelog.schema.json_schema.limits import compare_limits
from tidelog.schema.json_schema.patterns import matches
from tidelog.schema.json_schema.shape import (
    CONST,
    EMPTY,
    ENUM,
    FALSE,
    FAMILY,
    NOT,
    Model,
    Shape,
    Subschema,
)
from tidelog.schema.schema import Reason

Pair = tuple[int, int]
Side = Subschema | Shape


def compatible(reader: Model, writer: Model) -> list[Reason]:
    budget = Budget()
    wrong: dict[Pair, list[Reason]] = {}
    while True:
        walk = _Walk(writer, reader, budget, wrong)
        found = walk.compare(writer.root, reader.root, "#")
        known = {pair: reasons for pair, reasons in walk.known.items() if reasons}
        if not walk.assumed or known.keys() == wrong.keys():
            return found
        wrong = known


class _Walk:
    def __init__(self, old: Model, new: Model, budget: Budget, wrong: dict[Pair, list[Reason]]) -> None:
        self.old = old
        self.new = new
        self.known: dict[Pair, list[Reason]] = {}
        self.assumed = False
        self._budget = budget
        self._wrong = wrong
        self._open: set[Pair] = set()

    def compare(self, old: Side | None, new: Side | None, path: str) -> list[Reason]:
        self._budget.spend()
        if old is None:
            return [] if new is None else [_reason("SCHEMA_ADDED", path, "a schema has come where there was none")]
        if new is None:
            return []
        before, after = self.old.shape(old), self.new.shape(new)
        pair = (id(before), id(after))
        if pair in self.known:
            return self.known[pair]
        if pair in self._open:
            self.assumed = self.assumed or pair not in self._wrong
            return self._wrong.get(pair, [])
        self._open.add(pair)
        found = self._shapes(before, after, path)[:REASONS_MAX]
        self._open.discard(pair)
        self.known[pair] = found
        return found

    def _shapes(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        if old.combined != new.combined and self._fits_a_part(old, new, path):
            return []
        if _class_of(old) != _class_of(new):
            if old.kind == FALSE or new.kind == EMPTY or _both_bytes(old, new):
                return []
            return [_reason("TYPE_CHANGED", path, f"what was {old.kind} is {new.kind}")]
        if old.combined:
            return self._combined(old, new, path)
        compare = _BY_KIND.get(_class_of(old))
        return compare(self, old, new, path) if compare else []

    def _fits_a_part(self, old: Shape, new: Shape, path: str) -> bool:
        if new.combined:
            any_will_do = len(new.parts) == 1 or new.kind in ("anyOf", "oneOf")
            return any_will_do and any(not self.compare(old, part, path) for part in new.parts)
        any_will_do = len(old.parts) == 1 or old.kind == "allOf"
        return any_will_do and any(not self.compare(part, new, path) for part in old.parts)

    # Combinations

    def _combined(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        if _criterion_changed(old, new):
            return [_reason("COMBINED_TYPE_CHANGED", path, f"{old.kind} has become {new.kind}")]
        self._budget.spend(len(old.parts) + len(new.parts))
        before, after = self.old.distinct(old), self.new.distinct(new)
        reasons = []
        if len(before) < len(after) and new.kind == "allOf":
            reasons.append(_reason("PRODUCT_TYPE_EXTENDED", path, "allOf demands more"))
        if len(before) > len(after) and old.kind != "allOf":
            reasons.append(_reason("SUM_TYPE_NARROWED", path, f"{old.kind} has fewer ways"))
        fits = [
            [place for place, other in enumerate(after) if not self.compare(one, other, f"{path}/{old.kind}/{index}")]
            for index, one in enumerate(before)
        ]
        if _matched(fits, len(after)) < min(len(before), len(after)):
            sentence = f"parts of {old.kind} have changed so that they no longer fit"
            reasons.append(_reason("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path, sentence))
        return reasons

    # Kinds

    def object(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        self._budget.spend(sum(map(_listed, (old, new))))
        reasons = self._required(old, new, path)
        before, after = _named(old, "properties"), _named(new, "properties")
        for name in {**before, **after}:
            at = f"{path}/properties/{name}"
            if name not in after:
                reasons += self._property_removed(name, before[name], new, at)
            elif name not in before:
                reasons += self._property_added(name, old, new, at)
            else:
                reasons += self.compare(before[name], after[name], at)
        reasons += self._dependencies(old, new, path)
        reasons += self._additional(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES", path)
        reasons += self._unevaluated(old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES", path)
        return reasons + compare_limits(old.value, new.value, ("maxProperties",), ("minProperties",), path)

    def _required(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        before, after = set(old.value.get("required", ())), set(new.value.get("required", ()))
        here = _named(new, "properties")
        return [
            _reason("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}", f"{name!r} has become required")
            for name in _named(old, "properties")
            if name in here and name in after - before and not _has_default(here[name])
        ]

    def _property_removed(self, name: str, was: Subschema, new: Shape, path: str) -> list[Reason]:
        if _is_open(new, "object"):
            return []
        for cover in _covers(new, name):
            if cover is None:
                if was.value is False:
                    return []
                sentence = f"{name!r} is gone, and nothing takes its place"
                return [_reason("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path, sentence)]
            reasons = self.compare(was, cover, path)
            if reasons:
                sentence = f"{name!r} is gone, and what is let through instead does not fit"
                return [
                    *reasons,
                    _reason("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path, sentence),
                ]
        return []

    def _property_added(self, name: str, old: Shape, new: Shape, path: str) -> list[Reason]:
        came = _named(new, "properties")[name]
        required = name in new.value.get("required", ())
        if _is_open(old, "object"):
            if self.new.shape(came).kind == EMPTY:
                return []
            kind = "REQUIRED_PROPERTY_WITH_DEFAULT" if _has_default(came) else "REQUIRED_PROPERTY"
            kind = kind if required else "OPTIONAL_PROPERTY"
            sentence = f"{name!r} has come, and data may have had it with any type"
            return [_reason(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL", path, sentence)]
        reasons: list[Reason] = []
        for cover in _covers(old, name):
            found = self.compare(cover, came, path) if cover is not None else []
            if found:
                sentence = f"{name!r} has come, and what was let through before does not fit it"
                kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                reasons += [*found, _reason(kind, path, sentence)]
        if required and not _has_default(came):
            sentence = f"{name!r} has come, is required and has no default"
            reasons.append(_reason("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path, sentence))
        return reasons

    def _dependencies(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        reasons: list[Reason] = []
        before, after = _dependent_names(old), _dependent_names(new)
        for name, needed in after.items():
            at = f"{path}/dependencies/{name}"
            if name not in before:
                reasons.append(_reason("DEPENDENCY_ARRAY_ADDED", at, f"{name!r} now needs others"))
            elif needed - before[name]:
                kind = "DEPENDENCY_ARRAY_EXTENDED" if needed >= before[name] else "DEPENDENCY_ARRAY_CHANGED"
                reasons.append(_reason(kind, at, f"{name!r} now needs other properties"))
        was, now = _dependent_schemas(old), _dependent_schemas(new)
        for name, schema in now.items():
            at = f"{path}/dependencies/{name}"
            if name in was:
                reasons += self.compare(was[name], schema, at)
            else:
                reasons.append(_reason("DEPENDENCY_SCHEMA_ADDED", at, f"{name!r} now demands a schema"))
        return reasons

    def _additional(self, old: Shape, new: Shape, keyword: str, kind: str, path: str) -> list[Reason]:
        return self._rest(_rest(old, keyword), _rest(new, keyword), keyword, kind, path)

    def _rest(self, before: Side | bool, after: Side | bool, keyword: str, kind: str, path: str) -> list[Reason]:
        """`True` lets everything through, `False` nothing."""
        at = f"{path}/{keyword}"
        if before is False or after is True:
            return []
        if after is False:
            return [_reason(f"{kind}_REMOVED", at, f"{keyword} no longer lets anything through")]
        if before is True:
            return [_reason(f"{kind}_NARROWED", at, f"{keyword} lets less through")]
        assert not isinstance(before, bool) and not isinstance(after, bool)
        return self.compare(before, after, at)

    def _unevaluated(self, old: Shape, new: Shape, keyword: str, kind: str, path: str) -> list[Reason]:
        if keyword not in old.value and keyword not in new.value:
            return []
        before, after = self._boolean(self.old, old, keyword), self._boolean(self.new, new, keyword)
        return self._rest(before, after, keyword, kind, path)

    def _boolean(self, model: Model, shape: Shape, keyword: str) -> Side | bool:
        if keyword not in shape.value:
            return True
        place = Subschema(shape.value[keyword], shape.place.resolver)
        kind = model.shape(place).kind
        return {EMPTY: True, FALSE: False}.get(kind, place)

    def array(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        reasons = self.compare(_all_items(old), _all_items(new), f"{path}/items")
        before, after = _items(old), _items(new)
        self._budget.spend(len(before) + len(after))
        for index in range(max(len(before), len(after))):
            at = f"{path}/items/{index}"
            if index >= len(after):
                reasons += self._item_removed(before[index], new, at)
            elif index >= len(before):
                reasons += self._item_added(after[index], old, at)
            else:
                reasons += self.compare(before[index], after[index], at)
        reasons += self._rest(
            _additional_items(old), _additional_items(new), "additionalItems", "ADDITIONAL_ITEMS", path
        )
        reasons += self._unevaluated(old, new, "unevaluatedItems", "UNEVALUATED_ITEMS", path)
        if new.value.get("uniqueItems") and not old.value.get("uniqueItems"):
            reasons.append(_reason("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "items must now differ"))
        return reasons + compare_limits(
            old.value, new.value, ("maxItems", "maxContains"), ("minItems", "minContains"), path
        )

    def _item_removed(self, was: Subschema, new: Shape, path: str) -> list[Reason]:
        if _is_open(new, "array"):
            return []
        cover = _cover_of_items(new)
        if cover is None:
            if was.value is False:
                return []
            return [_reason("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", path, "an item is gone, and none is let through")]
        reasons = self.compare(was, cover, path)
        kind = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return (
            [*reasons, _reason(kind, path, "an item is gone, and what is let through does not fit")] if reasons else []
        )

    def _item_added(self, came: Subschema, old: Shape, path: str) -> list[Reason]:
        if _is_open(old, "array"):
            if self.new.shape(came).kind == EMPTY:
                return []
            sentence = "an item has come where data may have had anything"
            return [_reason("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path, sentence)]
        cover = _cover_of_items(old)
        reasons = self.compare(cover, came, path) if cover is not None else []
        kind = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return [*reasons, _reason(kind, path, "an item has come that old items do not fit")] if reasons else []

    def string(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        reasons = compare_limits(old.value, new.value, ("maxLength",), ("minLength",), path)
        before, after = old.value.get("pattern"), new.value.get("pattern")
        if after is not None and after != before:
            kind = "PATTERN_ADDED" if before is None else "PATTERN_CHANGED"
            reasons.append(_reason(kind, f"{path}/pattern", "strings must match another pattern"))
        return reasons

    def number(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        upper, lower = ("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")
        reasons = compare_limits(old.value, new.value, upper, lower, path, divisor="multipleOf")
        if new.kind == "integer" and old.kind == "number":
            reasons.append(_reason("TYPE_NARROWED", path, "numbers must now be whole"))
        return reasons

    def enum(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        before, after = self.old.values(old), self.new.values(new)
        self._budget.spend(len(before) + len(after))
        if before <= after:
            return []
        kind = "ENUM_ARRAY_NARROWED" if after <= before else "ENUM_ARRAY_CHANGED"
        return [_reason(kind, f"{path}/enum", "values that were allowed are not any more")]

    def const(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        if self.old.values(old) == self.new.values(new):
            return []
        return [_reason("ENUM_ARRAY_CHANGED", f"{path}/const", "the one value that is allowed is another")]

    def excluded(self, old: Shape, new: Shape, path: str) -> list[Reason]:
        turned = _Walk(self.new, self.old, self._budget, {})
        before, after = Subschema(old.value[NOT], old.place.resolver), Subschema(new.value[NOT], new.place.resolver)
        if not turned.compare(after, before, f"{path}/not"):
            return []
        return [_reason("NOT_TYPE_EXTENDED", f"{path}/not", "more is forbidden")]


_BY_KIND: dict[str, Callable[[_Walk, Shape, Shape, str], list[Reason]]] = {
    "object": _Walk.object,
    "array": _Walk.array,
    "string": _Walk.string,
    "number": _Walk.number,
    ENUM: _Walk.enum,
    CONST: _Walk.const,
    NOT: _Walk.excluded,
}


def _reason(kind: str, path: str, sentence: str) -> Reason:
    return Reason(kind, path, sentence)


def _class_of(shape: Shape) -> str:
    return "combined" if shape.combined else FAMILY.get(shape.kind, shape.kind)


def _both_bytes(old: Shape, new: Shape) -> bool:
    """Kafka Connect's converter has written decimals in two ways; data of either is read by either."""
    return old.value.get("connect.type") == new.value.get("connect.type") == "bytes"


def _criterion_changed(old: Shape, new: Shape) -> bool:
    if old.kind == new.kind or new.kind == "anyOf":
        return False
    one, other = len(old.parts) == 1, len(new.parts) == 1
    return not ((one and other) or (one and new.kind == "oneOf") or (other and old.kind == "allOf"))


def _matched(fits: list[list[int]], size: int) -> int:
    """The most parts that can be paired, each with one of its own: augmenting paths."""
    taken: list[int | None] = [None] * size

    def place(index: int, tried: set[int]) -> bool:
        for to in fits[index]:
            if to not in tried:
                tried.add(to)
                other = taken[to]
                if other is None or place(other, tried):
                    taken[to] = index
                    return True
        return False

    return sum(place(index, set()) for index in range(len(fits)))


def _named(shape: Shape, keyword: str) -> dict[str, Subschema]:
    return {name: Subschema(value, shape.place.resolver) for name, value in shape.value.get(keyword, {}).items()}


def _listed(shape: Shape) -> int:
    lists = ("properties", "required", "patternProperties", "dependencies", "dependentRequired", "dependentSchemas")
    return sum(len(shape.value.get(keyword, ())) for keyword in lists)


def _has_default(place: Subschema) -> bool:
    return isinstance(place.value, dict) and "default" in place.value


def _rest(shape: Shape, keyword: str) -> Side | bool:
    value = shape.value.get(keyword, True)
    return value if isinstance(value, bool) else Subschema(value, shape.place.resolver)


def _is_tuple(shape: Shape) -> bool:
    return "prefixItems" in shape.value or isinstance(shape.value.get("items"), list)


def _all_items(shape: Shape) -> Subschema | None:
    items = shape.value.get("items")
    return None if items is None or _is_tuple(shape) else Subschema(items, shape.place.resolver)


def _items(shape: Shape) -> list[Subschema]:
    items = shape.value.get("prefixItems", shape.value.get("items"))
    return [Subschema(item, shape.place.resolver) for item in items] if isinstance(items, list) else []


def _additional_items(shape: Shape) -> Side | bool:
    return _rest(shape, "items" if "prefixItems" in shape.value else "additionalItems")


def _is_open(shape: Shape, kind: str) -> bool:
    if kind == "object" and shape.value.get("patternProperties"):
        return False
    rest = _rest(shape, "additionalProperties") if kind == "object" else _additional_items(shape)
    unevaluated = shape.value.get("unevaluatedProperties" if kind == "object" else "unevaluatedItems", True)
    return rest is True and unevaluated in (True, {})


def _covers(shape: Shape, name: str) -> Iterator[Subschema | None]:
    """What a property that is not named must fit: the first pattern that matches, else the rest, else None.

    Patterns are not run. Those that could match are all given, and then the rest as well.
    """
    for pattern, value in shape.value.get("patternProperties", {}).items():
        matched = matches(pattern, name)
        if matched is not False:
            yield Subschema(value, shape.place.resolver)
        if matched:
            return
    yield _rest_schema(shape, "additionalProperties", "unevaluatedProperties")


def _cover_of_items(shape: Shape) -> Subschema | None:
    keyword = "items" if "prefixItems" in shape.value else "additionalItems"
    return _rest_schema(shape, keyword, "unevaluatedItems")


def _rest_schema(shape: Shape, keyword: str, unevaluated: str) -> Subschema | None:
    value = shape.value.get(keyword)
    if isinstance(value, dict):
        return Subschema(value, shape.place.resolver)
    left = shape.value.get(unevaluated)
    return Subschema(left, shape.place.resolver) if value in (None, True) and isinstance(left, dict) and left else None


def _dependent_names(shape: Shape) -> dict[str, set[str]]:
    both: Mapping[str, Any] = {**shape.value.get("dependencies", {}), **shape.value.get("dependentRequired", {})}
    return {name: set(needed) for name, needed in both.items() if isinstance(needed, list)}


def _dependent_schemas(shape: Shape) -> dict[str, Subschema]:
    both: Mapping[str, Any] = {**shape.value.get("dependencies", {}), **shape.value.get("dependentSchemas", {})}
    return {name: Subschema(one, shape.place.resolver) for name, one in both.items() if not isinstance(one, list)}
