"""What a replica gives of a wrapped key: to a next region a share of its wrap key and wraps, to readers its shares."""

from __future__ import annotations

import pytest

from bridge.replica.wrapping import WrappedKey
from keys.sharetree import Label, Share
from keys.wrapping import Wrap, WrapKey, WrapName, decode_wraps, wrap_key
from tests.keys.wrapped import Way

WAY = Way((3, 3, 3, 3, 3))
OWN = WAY.place(2, 2)
SEED = WAY.replica_seed(2, 2)
HELD: dict[Label, Share] = {share.label: share for (_, owner), share in WAY.values[2].items() if owner == 2}
OTHERS = [wrap for wrap in WAY.wraps if wrap.name.owner.region == 2]


def third() -> WrappedKey:
    """Replica 2 of the third region, which believes the wraps of the second."""
    key = WrappedKey(WAY.header, WAY.hops[:3], OWN)
    for place in (1, 2, 3):
        key.others.take_wraps([wrap for wrap in OTHERS if wrap.name.owner.place == place], WAY.place(1, place))
    return key


def came(key: WrappedKey) -> list[Label | WrapName]:
    return [*HELD, *key.others.believed]


def test_a_replica_behind_gets_our_wraps_and_those_that_we_believe() -> None:
    key = third()
    frame = key.frame(came(key), HELD, SEED)
    assert frame is not None
    key_id, wraps = decode_wraps(frame)
    assert key_id == WAY.header.key_id
    own = [wrap for wrap in WAY.wraps if wrap.name.owner == OWN]
    assert {*wraps} == {*OTHERS, *own}
    assert key.wrap_key_share(SEED) == wrap_key(WAY.header.digest, OWN, SEED)
    assert key.frame(came(key), HELD, SEED) == frame, "a retransmission repeats it"


def test_a_reader_here_gets_no_wraps_of_ours_which_it_needs_not() -> None:
    key = third()
    frame = key.frame(came(key), HELD, None)
    assert frame is not None
    assert {*decode_wraps(frame)[1]} == {*OTHERS}


@pytest.mark.parametrize("seed", [SEED, None])
def test_news_hold_what_came_alone(seed: bytes | None) -> None:
    key = third()
    (label, *_), name = [*HELD], OTHERS[4].name
    frame = key.frame([label, name], HELD, seed)
    assert frame is not None
    mine = WrapKey(key.wrap_key_share(SEED).value, WAY.header.digest, OWN).seal(HELD[label])
    told = decode_wraps(frame)[1]
    assert {*told} == {Wrap(name, OTHERS[4].sealed), *([mine] if seed else [])}
    assert (key.frame([label], HELD, None) is None) is True, "to a reader a share alone brings no wrap"


def test_what_is_not_believed_goes_nowhere() -> None:
    key = WrappedKey(WAY.header, WAY.hops[:4], WAY.place(3, 1))
    far = [wrap for wrap in WAY.wraps if wrap.name.owner.region == 2]
    key.others.take_wraps(far, WAY.place(2, 1))
    assert not key.others.believed
    assert key.others.needed == 2


def test_in_the_publishers_region_nobody_wraps() -> None:
    key = WrappedKey(WAY.header, WAY.hops[:1], WAY.place(0, 1))
    first = {share.label: share for share in WAY.level1[:1]}
    assert not key.wraps_itself
    assert key.frame([*first], first, SEED) is None
    assert third().wraps_itself
