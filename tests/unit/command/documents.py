"""What a command prints as JSON, checked by the schema that documents it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

import txtopo.command

SCHEMAS = Path(txtopo.command.__file__).parent / "schemas"


def document(schema: str, text: str) -> Any:
    """Return the document in a text; *schema* is the name of its schema."""
    found = json.loads(text)
    wanted = json.loads((SCHEMAS / f"{schema}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(wanted)
    jsonschema.validate(found, wanted)
    return found
