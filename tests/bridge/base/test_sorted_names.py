"""Names in order, against looking at all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.base import SortedNames

NAMES = st.text(alphabet=st.sampled_from("ab:\U0010fffe"), max_size=4)


@given(st.sets(NAMES), st.sets(NAMES), NAMES)
def test_those_with_a_beginning_are_found(added: set[str], gone: set[str], prefix: str) -> None:
    names = SortedNames()
    for name in added:
        names.add(name)
    for name in gone:
        names.discard(name)
    first, last = names.beginning(prefix)
    found = [names[place] for place in range(first, last)]
    assert found == sorted(name for name in added - gone if name.startswith(prefix))
    assert len(names) == len(added - gone)
