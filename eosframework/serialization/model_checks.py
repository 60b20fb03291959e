"""Checks that the JSON of a model's instance will be read again, without reading it.

pydantic validates an instance when it is made, not when a field is set, and writes what it holds.
Its serializer finds values of another type. It passes over None, over constraints (`gt=0`), over
missing fields, and over fields that only a subclass has. The checks find these on the instance, at
a fraction of the cost of reading its JSON. Where they do not suffice, because of a validator or
serializer of the user's for example, `Reader` reads the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaValidator, core_schema

from eosframework.serialization.strict_json import no_number

Schema = dict[str, Any]

Check = Callable[[Any, bool], None]
"""Takes a value, and whether its JSON contains a null; raises if it would not be read again."""

_SCALARS = frozenset(
    {
        "str",
        "int",
        "float",
        "bool",
        "date",
        "time",
        "datetime",
        "timedelta",
        "uuid",
        "bytes",
        "enum",
    }
)
_LISTS = frozenset({"list", "set", "frozenset"})
_UNLIMITED_KEYS = frozenset(
    {"type", "ref", "metadata", "strict", "microseconds_precision"}
    | {"cls", "members", "sub_type", "missing"}  # Of an enumeration.
)
_COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_ITEM_KEYS = frozenset({"items_schema", "keys_schema", "values_schema"})


class Reader:
    """Raises if the JSON of a model would not be read as the same model.

    Args:
        model: class of the values.
        schema: its core schema.
        read: returns the value of JSON.

    Attributes:
        always: each instance needs the call. False: one of the class itself with `count` members
            that are right (`is_right`) needs it only if its JSON has a null.
        is_right: takes the members, and may raise; None: any are right.
        count: the number of fields; -1: unknown.
        reads_back: the JSON is read to know whether it can be.
        finds_nan: every float is a field that is checked if the JSON has a null.
    """

    def __init__(self, model: type[BaseModel], schema: Any, read: Callable[[bytes], Any]) -> None:
        compiler = _Compiler()
        compiler.place(schema)
        self._check = check = compiler.models[model]
        self._read = read
        self._compares = compiler.compares
        self.reads_back = compiler.reads_back or compiler.compares
        self.always = check.always or self.reads_back
        self.count, self.is_right = check.count, check.is_right
        self.finds_nan = not (self.reads_back or compiler.hides_floats)
        if not self.finds_nan:
            for one in compiler.models.values():
                one.floats.clear()

    def __call__(self, value: Any, data: bytes, has_null: bool) -> None:
        """Raise if a value's JSON would be refused or lose something.

        Args:
            value: expected to be of the class.
            data: its JSON.
            has_null: the JSON contains a null.

        Raises:
            TypeError: it is of a subclass with more fields.
            ValueError: a reader would refuse it; names the field.
        """
        try:
            self._check(value, has_null)
            again = self._read(data) if self.reads_back else value
        except ValidationError as error:
            raise ValueError(f"its JSON would not be read again: {error}") from None
        if self._compares and again != value:
            raise ValueError(
                f"its JSON would be read as {again!r:.200}: a field of {type(value).__name__} is "
                f"written by another alias than it is read by"
            )


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a value.

    Args:
        check: None: none is needed.
        nullable: None may stand there.
        is_limited: the validator refuses values that the serializer writes.
        always: `check` is needed also if the JSON has no null.
    """

    check: Check | None = None
    nullable: bool = False
    is_limited: bool = False
    always: bool = False


class _Compiler:
    """Compiles a core schema.

    Attributes:
        reads_back: some part can only be checked by reading.
        hides_floats: a float may stand elsewhere than in a field.
        compares: some field is written by another name than it is read by.
        models: the checks of each class.
    """

    def __init__(self) -> None:
        self.reads_back = False
        self.hides_floats = False
        self.compares = False
        self._definitions: dict[str, Schema] = {}
        self.models: dict[Any, _ModelCheck] = {}
        self._open: set[str] = set()
        self._kinds: dict[str, Callable[[Schema], _Place]] = {
            "any": self._any,
            "none": self._any,
            "nullable": self._nullable,
            "default": lambda schema: self.place(schema["schema"]),
            "definitions": self._defined,
            "definition-ref": self._definition_ref,
            **dict.fromkeys(_LISTS, self._list),
            "dict": self._dict,
            "union": self._union,
            "tagged-union": lambda schema: self._of_choices(schema["choices"].values()),
            "model": self._model,
        }

    def place(self, schema: Schema) -> _Place:
        """Return the check of a value of a schema."""
        kind = schema["type"]
        if "serialization" in schema:
            self.reads_back = True
        if kind in _SCALARS:
            self.hides_floats |= kind == "float"
            return _Place(is_limited=bool(schema.keys() - _UNLIMITED_KEYS))
        if kind in ("literal", "decimal"):
            return _Place(is_limited=True)
        if (compiled := self._kinds.get(kind)) is not None:
            return compiled(schema)
        self.reads_back = True
        inner: Any = schema.get("schema")
        return self.place(cast(Schema, inner)) if isinstance(inner, dict) else _Place()

    def _any(self, _: Schema) -> _Place:
        self.hides_floats = True
        return _Place(nullable=True)

    def _nullable(self, schema: Schema) -> _Place:
        inner = self.place(schema["schema"])
        return _Place(_or_none(inner.check), True, inner.is_limited, inner.always)

    def _defined(self, schema: Schema) -> _Place:
        self._definitions |= {one["ref"]: one for one in schema["definitions"]}
        return self.place(schema["schema"])

    def _definition_ref(self, schema: Schema) -> _Place:
        reference = schema["schema_ref"]
        target = self._definitions[reference]
        if target["type"] == "model":
            return self.place(target)
        if reference in self._open:
            self.reads_back = True
            return _Place()
        self._open.add(reference)
        place = self.place(target)
        self._open.discard(reference)
        return place

    def _list(self, schema: Schema) -> _Place:
        item = self.place(schema.get("items_schema") or {"type": "any"})
        return self._of_members(schema, item, _each)

    def _dict(self, schema: Schema) -> _Place:
        if self.place(schema.get("keys_schema") or {"type": "any"}).is_limited:
            self.reads_back = True
        item = self.place(schema.get("values_schema") or {"type": "any"})
        return self._of_members(schema, item, _each_value)

    def _of_members(self, schema: Schema, item: _Place, each: Callable[[_Place], Check]) -> _Place:
        is_limited = item.is_limited or bool(schema.keys() - _UNLIMITED_KEYS - _ITEM_KEYS)
        if is_limited and item.always:
            self.reads_back = True
        check = each(item) if item.check is not None or not item.nullable else None
        return _Place(check, False, is_limited, item.always)

    def _union(self, schema: Schema) -> _Place:
        choices: list[Any] = schema["choices"]
        return self._of_choices([one[0] if isinstance(one, tuple) else one for one in choices])

    def _of_choices(self, choices: Iterable[Any]) -> _Place:
        places = [self.place(one) for one in choices]
        checks = [place.check for place in places if place.check is not None]
        always = any(place.always for place in places)
        is_limited = any(place.is_limited for place in places)
        if always and is_limited:
            self.reads_back = True
        nullable = any(place.nullable for place in places)
        return _Place(_one_of(checks) if checks else None, nullable, is_limited, always)

    def _model(self, schema: Schema) -> _Place:
        model = schema["cls"]
        known = self.models.get(model)
        if known is None:
            known = self.models[model] = _ModelCheck(model)
            self._fill(known, schema)
        return _Place(known, always=True)

    def _fill(self, check: _ModelCheck, schema: Schema) -> None:
        config = schema.get("config", {})
        own = schema.get("custom_init") or schema.get("root_model")
        post_init = schema.get("post_init") not in (None, "init_private_attributes")
        inner = schema["schema"]
        if (
            config.get("extra_fields_behavior") == "allow"
            or schema.get("extra_behavior") == "allow"
        ):
            self.hides_floats = True
        if config.get("ser_json_inf_nan", "null") != "null":
            self.hides_floats = True
        if own or post_init or any(name.startswith("str_") for name in config):
            self.reads_back = True
        while inner["type"] != "model-fields":
            self.reads_back = True
            if not isinstance(inner.get("schema"), dict):
                return
            inner = inner["schema"]
        if "serialization" in inner or "extras_schema" in inner:
            self.reads_back = True
        if inner.get("computed_fields") and config.get("extra_fields_behavior") == "forbid":
            self.reads_back = True
        by_name = config.get("populate_by_name") or config.get("validate_by_name")
        limited: Schema = {}
        for name, field in inner["fields"].items():
            self._require_one_name(name, field, bool(by_name))
            hides_floats = self.hides_floats
            place = self.place(field["schema"])
            if _is_float(field["schema"]):
                check.floats.append(name)
                self.hides_floats = hides_floats
            if place.is_limited and not place.always:
                limited[name] = core_schema.typed_dict_field(field["schema"])
            else:
                check.add(name, place)
        check.limit(limited, list(self._definitions.values()))

    def _require_one_name(self, name: str, field: Schema, by_name: bool) -> None:
        """Note a field that is not read by the name that it is written by."""
        if field.get("serialization_exclude") or field.get("serialization_exclude_if"):
            self.reads_back = True
            return
        written = field.get("serialization_alias", name)
        alias = field.get("validation_alias", name)
        if written != alias and not (by_name and written == name):
            self.compares = True


class _ModelCheck:
    """Checks the instances of a model.

    Attributes:
        is_right: true only for members that keep all constraints; it may raise. None: there are no
            constraints, or too many for it.
        floats: the names of fields that are floats.
        count: the number of fields; an instance with as many members lacks none. -1: unknown.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        self._fields = frozenset(model.model_fields)
        self.count = -1 if _has_cached(model) else len(self._fields)
        self._checks: list[tuple[str, Check]] = []
        self._null_checks: list[tuple[str, Check]] = []
        self.floats: list[str] = []
        self._filled: list[str] = []
        self._values: Callable[[Any], tuple[Any, ...]] | None = None
        self._validate: Callable[[Any], Any] | None = None
        self.is_right: Callable[[Any], bool] | None = None

    def add(self, name: str, place: _Place) -> None:
        """Add a field."""
        if place.check is not None:
            (self._checks if place.always else self._null_checks).append((name, place.check))
        if not place.nullable:
            self._filled.append(name)
            self._values = itemgetter(name, *self._filled)

    def limit(self, fields: Schema, definitions: list[Any]) -> None:
        """Add the fields with constraints."""
        if fields:
            schema: Any = core_schema.typed_dict_schema(fields, cls_name=self._model.__name__)
            if definitions:
                schema = core_schema.definitions_schema(schema, definitions)
            self._validate = SchemaValidator(schema).validate_python
            self.is_right = _quick(fields)

    @property
    def always(self) -> bool:
        """True if `is_right` does not suffice for an instance of the class without a null."""
        return bool(self._checks) or (self._validate is not None and self.is_right is None)

    def __call__(self, value: Any, has_null: bool) -> None:
        """Raise if a reader of its JSON would refuse or lose something.

        Args:
            value: expected to be an instance.
            has_null: the JSON contains a null.

        Raises:
            TypeError: it is no instance, or a subclass has fields that would be lost.
            ValueError: a field is missing, None where that is not allowed, or breaks a constraint.
        """
        if value.__class__ is not self._model:
            require_all_fields(self._model, value)
        members = value.__dict__
        if len(members) != self.count and (missing := self._fields - members.keys()):
            raise ValueError(f"{self._model.__name__} has no {', '.join(sorted(missing))}")
        if has_null:
            self._refuse_none(members)
        if self._validate is not None and not self._is_right(members):
            self._validate(members)
        for name, check in self._checks:
            check(members[name], has_null)

    def _is_right(self, members: Any) -> bool:
        try:
            return self.is_right is not None and self.is_right(members)
        except (LookupError, TypeError, AttributeError, ArithmeticError):
            return False

    def _refuse_none(self, members: dict[str, Any]) -> None:
        if self._values is not None and None in self._values(members):
            names = [name for name in self._filled if members[name] is None]
            raise ValueError(
                f"{', '.join(names)} of {self._model.__name__} is None; expected a value, or the "
                f"annotation `| None`"
            )
        for name in self.floats:
            number = members[name]
            if number is not None and number - number != 0.0:
                raise no_number(name, number)
        for name, check in self._null_checks:
            check(members[name], True)


def require_all_fields(model: type[BaseModel], value: Any) -> None:
    """Raise if a value is no instance of a model, or has fields that the model would not write.

    Raises:
        TypeError: names both classes, and the fields that would be lost.
    """
    kind: Any = value.__class__
    if not isinstance(value, model):
        raise TypeError(f"expected {model.__name__}, got {kind.__name__}: {value!r:.80}")
    kept = {*model.model_fields, *model.model_computed_fields}
    lost: set[str] = {*kind.model_fields, *kind.model_computed_fields} - kept
    if model.model_config.get("extra") != "allow":
        lost |= (value.__pydantic_extra__ or {}).keys()
    if lost:
        raise TypeError(
            f"expected {model.__name__}, got its subclass {kind.__name__}, of which "
            f"{', '.join(sorted(lost))} would be lost; declare {kind.__name__}, or return "
            f"{model.__name__}"
        )


def _has_cached(model: type[BaseModel]) -> bool:
    """Return whether instances keep more than fields in their dictionary."""
    return any(
        isinstance(member, cached_property)
        for kind in model.__mro__
        for member in vars(kind).values()
    )


def _is_float(schema: Schema) -> bool:
    while schema["type"] in ("nullable", "default"):
        schema = schema["schema"]
    return schema["type"] == "float"


def _quick(fields: Schema) -> Callable[[Any], bool] | None:
    """Return a function that is true only for members that keep all constraints.

    Otherwise it is false, or raises any error, and the validator decides. None: the constraints are
    too many for simple comparisons.

    Args:
        fields: typed-dict fields by name.
    """
    known: dict[str, Any] = {}
    terms = [_term(name, field["schema"], known) for name, field in fields.items()]
    if None in terms:
        return None
    return eval(f"lambda members: {' and '.join(cast('list[str]', terms))}", known)


def _term(name: str, schema: Schema, known: dict[str, Any]) -> str | None:
    """Return an expression that is true only for values that a field takes; None: there is none.

    Args:
        name: of the field.
        schema: of the field.
        known: the names that expressions use; more are added.
    """
    while schema["type"] == "default":
        schema = schema["schema"]
    if schema["type"] == "nullable":
        inner = _term(name, schema["schema"], known)
        return inner and f"(members[{name!r}] is None or {inner})"
    value, number = f"members[{name!r}]", len(known)
    if schema["type"] == "literal":
        known[f"x{number}"] = frozenset((one.__class__, one) for one in schema["expected"])
        return f"(({value}).__class__, {value}) in x{number}"
    limits = {key: limit for key, limit in schema.items() if key not in _UNLIMITED_KEYS}
    if schema["type"] == "str" and limits.keys() <= {"min_length", "max_length"}:
        return f"{limits.get('min_length', 0)} <= len({value}) <= {limits.get('max_length', 2**63)}"
    if schema["type"] == "decimal" and not limits:
        return f"{value}.is_finite()"
    if schema["type"] not in ("int", "float") or not limits.keys() <= _COMPARISONS.keys():
        return None
    for key in limits:
        known[f"x{number}{key}"] = limits[key]
    return " and ".join(f"{value} {_COMPARISONS[key]} x{number}{key}" for key in limits)


def _or_none(check: Check | None) -> Check | None:
    if check is None:
        return None

    def checked(value: Any, has_null: bool) -> None:
        if value is not None:
            check(value, has_null)

    return checked


def _each(item: _Place) -> Check:
    check, nullable = item.check, item.nullable

    def checked(value: Any, has_null: bool) -> None:
        if has_null and not nullable and (value is None or None in value):
            raise ValueError("a list is None, or has a None; expected a value")
        if check is not None:
            for member in value:
                check(member, has_null)

    return checked


def _each_value(item: _Place) -> Check:
    of_list = _each(item)

    def checked(value: Any, has_null: bool) -> None:
        of_list(None if value is None else value.values(), has_null)

    return checked


def _one_of(checks: list[Check]) -> Check:
    """Return the check of a union: one of its choices with a check must take the value."""

    def checked(value: Any, has_null: bool) -> None:
        refused: Exception | None = None
        for check in checks:
            try:
                check(value, has_null)
            except (TypeError, ValueError, AttributeError) as error:
                refused = refused or error
            else:
                return
        if refused is not None and isinstance(value, BaseModel | list | dict | tuple):
            raise refused

    return checked
