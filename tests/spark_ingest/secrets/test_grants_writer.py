"""The file of scope keys as its writer keeps it: there before the rows, gone after the last of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.envelope import KeyName
from spark_ingest.errors import GrantsError
from spark_ingest.secrets.grants import Grants, read_grants
from spark_ingest.secrets.grants_writer import GrantsWriter
from tests.spark_ingest.region import TOKEN_KEY, Overlay, epoch_key, write_grants

SCOPE = "plant/#"


def name(epoch: int, bump: int = 0) -> KeyName:
    return KeyName(SCOPE, epoch, bump)


def holding(*names: KeyName) -> Grants:
    return Overlay(scopes=(SCOPE,)).held(names)


def renew(writer: GrantsWriter, held: Grants, oldest: int = 1, newest: int = 1) -> bool:
    """Whether the file was written."""
    content = writer.renew_content(held, oldest, newest)
    if content is not None:
        writer.write(content)
    return content is not None


def on_disk(path: Path) -> set[KeyName]:
    return {each for scope in read_grants(path).scopes.values() for each in scope.keys}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job" / "scope_keys.json"


def test_what_is_written_is_what_is_read(path: Path) -> None:
    overlay = Overlay()
    held = overlay.held(token_key=TOKEN_KEY)
    assert renew(GrantsWriter(path, 0, ()), held)
    found = read_grants(path)
    assert found == held
    assert found.token_keys == (TOKEN_KEY,)
    assert found.scopes[SCOPE].keys[name(1)] == epoch_key(name(1))
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name], "nothing else is left behind"


def test_nothing_is_written_when_nothing_changed(path: Path) -> None:
    writer = GrantsWriter(path, 0, ())
    assert renew(writer, holding(name(0)))
    assert not renew(writer, holding(name(0)))
    path.unlink()
    assert renew(writer, holding(name(0))), "somebody took the file away"


def test_a_key_that_is_held_no_longer_stays_until_its_last_segment_is_trimmed(path: Path) -> None:
    writer = GrantsWriter(path, 0, ())
    renew(writer, holding(name(0)), newest=1)
    renew(writer, holding(name(0), name(1)), newest=4)
    renew(writer, holding(name(1)), oldest=1, newest=4)
    assert on_disk(path) == {name(0), name(1)}
    writer.used(6, [name(0)])  # a replica kept it for us
    renew(writer, holding(name(1)), oldest=6, newest=7)
    assert on_disk(path) == {name(0), name(1)}
    renew(writer, holding(name(1)), oldest=7, newest=7)
    assert on_disk(path) == {name(1)}


def test_a_restart_knows_which_segments_need_which_key(path: Path) -> None:
    writer = GrantsWriter(path, 0, ())
    renew(writer, holding(name(0), name(1), name(2)))
    writer.used(1, [name(0)])
    writer.used(2, [name(1)])
    renew(writer, holding(name(0), name(1), name(2)), newest=2)
    # Killed: what segment 3 holds was not told any more, but the spool knows it.
    again = GrantsWriter(path, 3, [name(2)])
    assert again.key_names == {name(0), name(1), name(2)}, "rows under them may go on before the key service answers"
    renew(again, holding(), oldest=2, newest=3)
    assert on_disk(path) == {name(1), name(2)}
    renew(again, holding(), oldest=3, newest=3)
    assert on_disk(path) == {name(2)}
    renew(again, holding(), oldest=4, newest=4)
    assert not on_disk(path)


def test_a_spool_that_was_taken_away_does_not_keep_old_keys_for_ever(path: Path) -> None:
    writer = GrantsWriter(path, 900, [name(0)])
    renew(writer, holding(name(0)), oldest=900, newest=900)
    fresh = GrantsWriter(path, 0, ())
    renew(fresh, holding(name(1)), oldest=1, newest=1)
    assert on_disk(path) == {name(1)}


def test_a_scope_that_the_job_lost_goes_with_its_last_key_and_one_without_keys_stays(path: Path) -> None:
    overlay = Overlay()
    writer = GrantsWriter(path, 0, ())
    renew(writer, overlay.held({name(0)}))
    writer.used(1, [name(0)])
    renew(writer, Grants({}), oldest=1, newest=1)
    assert set(read_grants(path).scopes) == {SCOPE}
    renew(writer, Grants({}), oldest=2, newest=2)
    assert not read_grants(path).scopes
    overlay.change(keyed=False)
    renew(writer, overlay.held(token_key=TOKEN_KEY), oldest=2, newest=2)
    renew(writer, Grants({}), oldest=9, newest=9)
    assert read_grants(path).token_keys == (TOKEN_KEY,)


def test_a_file_of_somebody_else_is_not_overwritten(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("notes")
    path.chmod(0o600)
    with pytest.raises(GrantsError, match="move it away"):
        GrantsWriter(path, 0, ())
    write_grants(path)
    path.chmod(0o644)
    with pytest.raises(GrantsError, match="chmod 600"):
        GrantsWriter(path, 0, ())


steps = st.tuples(
    st.sampled_from(["learn", "forget", "use", "roll", "trim", "restart"]), st.integers(0, 4)
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.lists(steps, max_size=40))
def test_no_row_is_left_without_its_key_and_no_key_outlives_its_rows(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("job") / "keys.json"
    held: set[KeyName] = set()
    segments: dict[int, set[KeyName]] = {1: set()}
    writer = GrantsWriter(path, 1, ())
    renew(writer, holding(), newest=1)
    for what, number in history:
        newest, oldest = max(segments), min(segments)
        if what == "learn":
            held.add(name(number))
        elif what == "forget":
            held.discard(name(number))
        elif what == "use" and name(number) in writer.key_names:
            segments[newest].add(name(number))
            writer.used(newest, [name(number)])
        elif what == "roll":
            renew(writer, holding(*held), oldest, newest)
            segments[newest + 1] = set()
        elif what == "trim" and len(segments) > 1:
            del segments[oldest]
        elif what == "restart":
            writer = GrantsWriter(path, newest, segments[newest])
        renew(writer, holding(*held), min(segments), max(segments))
        needed = set().union(*segments.values())
        assert needed | held <= on_disk(path)
    for _ in range(2):
        newest = max(segments) + 1
        segments = {newest: set()}
        renew(writer, holding(*held), newest, newest)
    assert on_disk(path) == held
