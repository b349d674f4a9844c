"""The types of what the web page receives, as TypeScript's declarations, from the Python types that are sent.

``python -m tests.support.pages.page_types FILE`` writes them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from cli.web.feed import Update
from core.view.card_log import CardHistory
from core.view.explained import Explained
from core.view.fits import Fits
from core.view.history import Why

_SIMPLE = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}


def declarations() -> str:
    """Return the declarations, all in the namespace `Feed`."""
    _, components = msgspec.json.schema_components((Update, Explained, Fits, Why, CardHistory), ref_template="{name}")
    found = "\n".join(f"  {_declared(name, schema)}" for name, schema in sorted(components.items()))
    return f"declare namespace Feed {{\n{found}\n}}\n"


def _declared(name: str, schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return f"type {name} = {_type(schema)};"
    # Every field is sent, with its default too.
    fields = " ".join(f"{field}: {_type(of)};" for field, of in schema["properties"].items())
    return f"interface {name} {{ {fields} }}"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"])
    if "anyOf" in schema:
        return " | ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"({_type(schema['items'])})[]"
    if kind == "object":
        return f"Record<string, {_type(schema.get('additionalProperties') or {})}>"
    return _SIMPLE.get(kind, "unknown") if isinstance(kind, str) else "unknown"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(declarations(), encoding="utf-8")
