"""JSON Schemas, with which editors complete and check topology and config files."""

from __future__ import annotations

from typing import Any

from eosframework.config import Settings
from eosframework.topology.spec.topology_spec import TopologySpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def topology_schema() -> dict[str, Any]:
    """Return the JSON Schema of a topology file."""
    schema = TopologySpec.model_json_schema(by_alias=True)
    models = [{"$ref": "#/$defs/SinkSpec"}, {"$ref": "#/$defs/TableSpec"}]
    sink = {"anyOf": [{"type": "string"}, *models]}
    to = schema["$defs"]["StreamSpec"]["properties"]["to"]
    to.pop("items", None)
    to.pop("type", None)
    to["anyOf"] = [*sink["anyOf"], {"type": "array", "items": sink}]
    return {"$schema": DIALECT, "title": "eosframework topology", **_without_titles(schema)}


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema of a config file."""
    schema = Settings.model_json_schema()
    return {"$schema": DIALECT, "title": "eosframework settings", **_without_titles(schema)}


def _without_titles(schema: Any) -> Any:
    """Remove the titles that only repeat the names of fields."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value)
        for key, value in schema.items()  # pyright: ignore[reportUnknownVariableType]
        if not (key == "title" and isinstance(value, str))
    }
