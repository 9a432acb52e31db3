"""The bill of materials inside the wheel: python -m tests.bill writes it anew after a change of the dependencies.

The wheel brings no library of others, so its bill (CycloneDX 1.6) lists those that it asks for, with their ranges.
Which versions an installation then has is in the bill of an environment (`tests.release`).
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BILL = ROOT / "sbom" / "veilmq.cdx.json"


def bill() -> dict[str, Any]:
    """Returns the document for the project as `pyproject.toml` describes it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = sorted(project["dependencies"], key=str.lower)
    libraries = [_library(requirement) for requirement in asked]
    root = {
        "bom-ref": "veilmq",
        "type": "application",
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": f"pkg:pypi/{project['name']}@{project['version']}",
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": libraries,
        "dependencies": [
            {"ref": "veilmq", "dependsOn": [library["bom-ref"] for library in libraries]},
            *({"ref": library["bom-ref"]} for library in libraries),
        ],
    }


def _library(requirement: str) -> dict[str, Any]:
    """Returns the component of one line of `dependencies`. A range is no version: it stands in a property."""
    found = re.fullmatch(r"([A-Za-z0-9._-]+)\s*([^;]*)(?:;\s*(.*))?", requirement)
    assert found is not None, requirement
    name, wanted, marker = found[1], found[2].strip(), found[3]
    normal = re.sub(r"[-_.]+", "-", name).lower()
    properties = [{"name": "veilmq:range", "value": wanted}]
    properties += [{"name": "veilmq:marker", "value": marker}] if marker else []
    exact = re.fullmatch(r"==([0-9][A-Za-z0-9.]*)", wanted)
    component: dict[str, Any] = {"bom-ref": normal, "type": "library", "name": name}
    if exact:
        component |= {"version": exact[1]}
    purl = f"pkg:pypi/{normal}" + (f"@{exact[1]}" if exact else "")
    return component | {"scope": "required", "purl": purl, "properties": properties}


def text() -> str:
    """Returns the content of the file."""
    return json.dumps(bill(), indent=1) + "\n"


if __name__ == "__main__":
    BILL.parent.mkdir(exist_ok=True)
    BILL.write_text(text(), "utf-8")
