"""Epochs and epoch keys: their calendar, their derivation, and the keys of a party (E2, docs/protocol.md §6.1).

An *epoch* is a number computed from the owner's calendar and the party's own clock. A scope's key is named by
(scope, epoch, bump): the bump rises when the owner revokes a right at once, and outdates the keys issued before.
Not here: who issues keys and to whom (`issuing`), fetching keys (`fetching`).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from keys import frames
from keys.errors import BadFrame, KeysError, OurFault

KEY_BYTES = 32
EPOCH_MAX = 0xFFFFFFFE  # the number after it says "no end" in grants
TIME_MS_END = 1 << 64  # no header states a later time
SCOPE_KEYS_MAX = 65_536  # what one party holds; the oldest epochs go first


class KeyName(NamedTuple):
    """The name of an epoch key: the wire filter of its scope, its epoch, and how often the owner replaced it."""

    scope: str
    epoch: int
    bump: int

    def described(self) -> str:
        """Returns the name in words, for column `reason` and for operators."""
        return f"scope {self.scope}, epoch {self.epoch}, bump {self.bump}"


@dataclass(frozen=True, slots=True)
class Calendar:
    """The owner's calendar of epochs. `length_s` 0: an endless epoch, number 0.

    Epoch e begins at zero_ms / 1000 + e * length_s and ends when the next one begins. Members may fetch its keys
    `ahead_s`
    before it begins; for `grace_s` after its end its keys still seal where the key service is out of reach; clocks
    may
    differ by `skew_s`. Key servers keep the material of the last `history_epochs` ended epochs, for members whose
    grant
    reaches back. Raises `OurFault` or, decoded, `BadFrame` for times that do not fit each other.
    """

    zero_ms: int = 0
    length_s: int = 0
    ahead_s: int = 0
    grace_s: int = 0
    skew_s: int = 0
    history_epochs: int = 0

    def __post_init__(self) -> None:
        self._check(OurFault)

    def epoch_at(self, now: float) -> int:
        """Returns the epoch of this moment by our clock; 0 before the first."""
        if not self.length_s:
            return 0
        epoch = int((now - self.zero_ms / 1000) // self.length_s)
        # rounding must not part from `start_s`: who waits for an epoch's start would find it not begun
        epoch += (now >= self.start_s(epoch + 1)) - (now < self.start_s(epoch))
        return min(EPOCH_MAX, max(0, epoch))

    def start_s(self, epoch: int) -> float:
        """Returns the UNIX time at which the epoch begins."""
        return self.zero_ms / 1000 + epoch * self.length_s

    def end_s(self, epoch: int) -> float:
        """Returns the UNIX time at which the next epoch begins; infinity without epochs."""
        return self.start_s(epoch + 1) if self.length_s else float("inf")

    def may_seal(self, epoch: int, now: float) -> bool:
        """Returns True if a publisher may still seal under a key of this epoch; the present epoch's key is
        preferred.
        """
        return epoch <= self.epoch_at(now) and now < self.end_s(epoch) + self.grace_s

    def sealing_ms(self, epoch: int) -> tuple[int, int]:
        """Returns the span of times, in whole milliseconds, in which `may_seal` holds: the first one, and the first one
        after it.
        """
        if not self.length_s:
            return 0, 0 if epoch else TIME_MS_END
        begins_ms = self.zero_ms + 1000 * epoch * self.length_s
        return begins_ms if epoch else 0, min(TIME_MS_END, begins_ms + 1000 * (self.length_s + self.grace_s))

    def live(self, epoch: int, now: float) -> bool:
        """Returns True if content claiming to be sealed in this epoch can be fresh, for any two clocks within the
        skew.
        """
        begins_s, ends_s = self.live_span(epoch)
        return begins_s <= now < ends_s

    def live_span(self, epoch: int) -> tuple[float, float]:
        """Returns the span of UNIX times in which `live` holds: its begin, and the first time after it."""
        if not self.length_s:
            return -inf, inf if epoch == 0 else -inf
        return self.start_s(epoch) - self.skew_s, self.end_s(epoch) + self.grace_s + self.skew_s

    def fetch_from_s(self, epoch: int) -> float:
        """Returns the UNIX time from which members may ask for keys of this epoch."""
        return self.start_s(epoch) - self.ahead_s

    def last(self, now: float) -> int:
        """Returns the last epoch that any key may belong to: the next one, or the endless one."""
        return min(EPOCH_MAX, self.epoch_at(now) + 1) if self.length_s else 0

    def encode(self) -> bytes:
        """Returns 28 bytes, without an opening: a part of the policy's frame."""
        fields = (self.length_s, self.ahead_s, self.grace_s, self.skew_s, self.history_epochs)
        return frames.number(self.zero_ms, 8) + b"".join(frames.number(field, 4) for field in fields)

    @classmethod
    def read(cls, reader: frames.Reader) -> Calendar:
        try:
            return cls(reader.number(8), *(reader.number(4) for _ in range(5)))
        except OurFault as error:
            raise BadFrame(str(error)) from None

    def _check(self, error: type[KeysError]) -> None:
        around_s = self.ahead_s + self.grace_s + 2 * self.skew_s
        if self.length_s and around_s >= self.length_s:
            raise error(
                f"an epoch of {self.length_s} s is no longer than ahead + grace + 2 skew ({around_s} s); make it longer"
            )


class ScopeKeys:
    """The epoch keys that one party holds, at most `SCOPE_KEYS_MAX`. Shows no key in its repr."""

    def __init__(self) -> None:
        self._keys: dict[KeyName, bytes] = {}

    def put_key(self, name: KeyName, key: bytes) -> bool:
        """Remembers a key; returns False if it was known. Raises `OurFault` for another value under a known name."""
        if len(key) != KEY_BYTES or not any(key):
            raise OurFault(f"a scope key is {KEY_BYTES} bytes, not all of them zero")
        if name in self._keys:
            if not hmac.compare_digest(self._keys[name], key):
                raise OurFault(f"two keys for scope {name.scope!r}, epoch {name.epoch}, bump {name.bump}")
            return False
        self._keys[name] = key
        if len(self._keys) > SCOPE_KEYS_MAX:
            del self._keys[min(self._keys, key=lambda n: (n.epoch, n.bump))]
        return True

    def replace(self, name: KeyName, key: bytes) -> None:
        """Puts another key in the place of one that turned out to be wrong (`fetching`)."""
        self._keys.pop(name, None)
        self.put_key(name, key)

    def get(self, name: KeyName) -> bytes | None:
        return self._keys.get(name)

    def to_seal(self, scope: str, bump: int, calendar: Calendar, now: float) -> tuple[KeyName, bytes] | None:
        """Returns the key a publisher seals under now: the present epoch's or, within its grace, the one before.

        Returns None if there is none yet: then nothing may be sealed. A key of an earlier bump never seals, since a
        member was
        shut out by the bump.
        """
        present = calendar.epoch_at(now)
        for epoch in (present, present - 1):
            name = KeyName(scope, epoch, bump)
            key = self._keys.get(name)
            if key is not None and calendar.may_seal(epoch, now):
                return name, key
        return None

    def __iter__(self) -> Iterator[tuple[KeyName, bytes]]:
        return iter(list(self._keys.items()))

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"ScopeKeys({len(self._keys)} keys)"


def scope_key(root: bytes, scope: str, epoch: int, bump: int = 0) -> bytes:
    """Returns K[scope, epoch, bump]: 32 secret bytes, independent for every name.

    `root`: 32 uniformly random secret bytes. `scope`: the wire filter. Raises `OurFault` for other sizes or numbers.
    """
    name = frames.text(scope) + frames.number(epoch, 4) + frames.number(bump, 2)
    return _derive(root, b"veilmq/1 scope" + name)


def token_key(root: bytes, generation: int = 0) -> bytes:
    """Returns K_tok of a generation: the 32-byte key for `topictokens`. It outlives epochs (E2)."""
    return _derive(root, b"veilmq/1 tokens" + frames.number(generation, 4))


def _derive(root: bytes, info: bytes) -> bytes:
    if len(root) != KEY_BYTES:
        raise OurFault(f"a root key of {len(root)} bytes; {KEY_BYTES} are needed")
    return HKDFExpand(hashes.SHA256(), KEY_BYTES, info).derive(root)
