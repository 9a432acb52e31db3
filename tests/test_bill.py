"""The bill of materials that the wheel carries says what the project asks for."""

from __future__ import annotations

import json
import tomllib

from tests.bill import BILL, ROOT, bill, text


def test_the_bill_is_that_of_the_dependencies_of_now() -> None:
    assert BILL.read_text("utf-8") == text(), "python -m tests.bill writes it anew"


def test_the_bill_is_cyclonedx() -> None:
    from cyclonedx.schema import SchemaVersion  # here, as it takes seconds, and each worker imports this file
    from cyclonedx.validation.json import JsonStrictValidator

    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text())
    assert errors is None, errors


def test_every_dependency_stands_in_it_once_with_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    said = {each["name"] + each["properties"][0]["value"] for each in bill()["components"]}
    assert said == {each.partition(";")[0].strip() for each in project["dependencies"]}
    (pinned,) = [each for each in bill()["components"] if "version" in each]
    assert (pinned["name"], pinned["purl"]) == ("amqtt", f"pkg:pypi/amqtt@{pinned['version']}")


def test_the_wheel_carries_it() -> None:
    """PEP 770: in `sboms` of the metadata, where scanners of installed packages look."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["sbom-files"] == ["sbom/veilmq.cdx.json"]
    assert json.loads(BILL.read_text("utf-8"))["metadata"]["component"]["version"] == pyproject["project"]["version"]
