"""Docstrings are plain English: they begin with a noun or a verb, stand alone and use few pronouns.

The limits of a package are never raised.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
VAGUE = frozenset(["what", "whether", "who", "whoever", "which", "whose", "when", "where", "how", "whatever"])
DANGLING = re.compile(
    r"(The same\b|Of (the|that|this|its|one)\b|That of\b|Those of\b|See (the|also)\b|As (above|before)\b"
    r"|It (is|was|has)\b|They\b|Same\b|Also\b|And\b|But\b)"
)
RIDDLE = re.compile(r"(What|Who|Whoever|Which|Whose|That) ")
PRONOUN = re.compile(r"\b(it|they|them|that|what|which|who|whoever|those|these|one|its|their|this)\b")


@pytest.fixture(scope="module", autouse=True)
def _no_garbage_among_trees() -> Iterator[None]:
    """Looks for none while modules are parsed, which takes longer than to parse them."""
    gc.disable()
    yield
    gc.enable()


class Prose(NamedTuple):
    """Shares in per cent of docstrings and sentences, and pronouns in 100 words."""

    vague: float
    dangling: float
    riddles: float
    pronouns: float


LIMITS = {
    "keys": Prose(0.5, 0.5, 0.5, 6.5),
    "bridge": Prose(0.3, 0.2, 0.5, 6.5),
    "gateway": Prose(0.3, 0.2, 0.5, 6.5),
    "papers": Prose(0.5, 0.5, 0.5, 6.5),
    "spark_ingest": Prose(0.5, 0.5, 0.5, 6.5),
}


def _docstrings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text


def measure(texts: list[str]) -> Prose:
    """Returns the figures of some docstrings."""
    sentences = [
        s for text in texts for s in re.split(r"(?<=[.:;?!])\s+", text.replace("\n", " ")) if len(s.split()) > 3
    ]
    words = sum(len(sentence.split()) for sentence in sentences)
    vague = sum(re.sub(r"\W", "", text.split()[0]).lower() in VAGUE for text in texts)
    return Prose(
        100 * vague / len(texts),
        100 * sum(DANGLING.match(text) is not None for text in texts) / len(texts),
        100 * sum(RIDDLE.match(sentence) is not None for sentence in sentences) / max(1, len(sentences)),
        100 * sum(len(PRONOUN.findall(sentence.lower())) for sentence in sentences) / max(1, words),
    )


@pytest.mark.parametrize("package", LIMITS)
def test_docstrings_of_a_package_are_plain(package: str) -> None:
    found = measure(list(_docstrings(ROOT / package)))
    above = {
        name: (has, most) for name, has, most in zip(Prose._fields, found, LIMITS[package], strict=True) if has > most
    }
    assert not above, f"rewrite docstrings of {package}/ that you added (a figure is above its limit): {above}"


def test_the_measure_sees_what_it_is_for() -> None:
    riddle = "What waits of it: until when that is, and what is done then."
    assert measure([riddle]) == Prose(100, 0, 50, 100 * 4 / 13)
    assert measure(["The same of one receiver, added up once."]).dangling == 100
    assert measure(["A held publication: its deadline and the callback that releases the publication."]).vague == 0
