"""How many publications of a scope go together: one spelling, and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.document.batching import BATCH_MOST, BATCHING, Batching
from bridge.document.policy import Scope
from keys.errors import BadFrame
from keys.frames import Reader

BATCHINGS = st.builds(
    Batching, st.integers(1, BATCH_MOST[0]), st.integers(1, BATCH_MOST[1]), st.integers(0, BATCH_MOST[2])
).filter(lambda batching: batching != BATCHING)


@given(BATCHINGS)
def test_what_is_written_is_read(batching: Batching) -> None:
    scope = Scope("plant/#", number=1, batch=batching)
    assert Scope.decode(scope.encode()) == scope


@pytest.mark.parametrize(
    "values", [(0, 1, 1), (1, 0, 1), (BATCH_MOST[0] + 1, 1, 1), (1, BATCH_MOST[1] + 1, 1), (1, 1, BATCH_MOST[2] + 1)]
)
def test_batches_that_are_none_are_refused(values: tuple[int, int, int]) -> None:
    with pytest.raises(BadFrame, match="batches of"):
        Batching.read(Reader(Batching(*values).encode()))


def test_the_default_has_one_spelling_which_is_none() -> None:
    with pytest.raises(BadFrame, match="not the default"):
        Batching.read(Reader(BATCHING.encode()))
    assert len(Scope("a/#", batch=Batching(1)).encode()) == len(Scope("a/#").encode()) + 8
