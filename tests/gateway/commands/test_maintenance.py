"""The manual page names every command and option, and no text of it is taken for a request of roff."""

from __future__ import annotations

import pytest

from gateway.cli import run
from gateway.commands.maintenance import _roff


def test_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["man"]) == 0
    page = capsys.readouterr().out
    for word in (".B veilmq init DIR", ".B veilmq trust grant", "\\-\\-protect", ".SH EXIT STATUS"):
        assert word in page


@pytest.mark.parametrize(
    ("text", "shown"), [(".so x", "\\&.so x"), ("'x", "\\&'x"), ("a\n.b", "a .b"), ("a\\b", "a\\eb")]
)
def test_text_is_no_request(text: str, shown: str) -> None:
    assert _roff(text) == shown
