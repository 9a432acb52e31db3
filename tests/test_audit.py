"""What the audit says: a weakness fails it, an allowed one has a reason, and what nobody audited is no good news."""

from __future__ import annotations

from typing import Any

import pytest

from tests import audit
from tests.audit import ALLOWED, judged

UNKNOWN = {"name": "cryptography", "skip_reason": "not found"}
WEAK = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"], "description": "x"}


def report(*libraries: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(libraries), "fixes": []}


def test_a_weakness_fails_with_its_cure_unless_it_is_allowed() -> None:
    found = report({"name": "a", "version": "1", "vulns": [WEAK]}, {"name": "b", "version": "1", "vulns": []})
    assert judged(found, {}) == (["2 of 2 libraries audited", "a 1: PYSEC-1: mended in 2"], 1)
    assert judged(found, {"CVE-1": "nobody calls it"}) == (
        ["2 of 2 libraries audited", "a 1: PYSEC-1: nobody calls it"],
        0,
    )
    unmended = report({"name": "a", "version": "1", "vulns": [{**WEAK, "fix_versions": []}]})
    assert judged(unmended, {})[0][1].endswith("mended in no version yet")


def test_what_the_registry_has_no_advisories_on_is_said_and_not_counted() -> None:
    lines, status = judged(report({"name": "a", "skip_reason": "not found"}))
    assert (lines[0], status) == ("0 of 1 libraries audited", 0)
    assert "not audited" in lines[1]


def test_a_registry_without_advisories_is_asked_once_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(audit, "asked", lambda arguments=(): asked.append(arguments) or report(UNKNOWN))
    assert audit.main() == 0
    assert "nothing audited" in capsys.readouterr().out
    assert len(asked) == 1
    monkeypatch.setattr(audit, "asked", lambda _=(): report({"name": "a", "version": "1", "vulns": [WEAK]}))
    assert audit.main() == 1
    assert "a 1: PYSEC-1" in capsys.readouterr().out


def test_every_allowed_advisory_has_a_reason() -> None:
    assert all(len(reason.split()) > 2 for reason in ALLOWED.values())
