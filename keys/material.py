"""Key material, from which key servers derive scope keys: subkeys that walk forward by epochs (docs/protocol.md §6.3).

    subkey[T + 1] = HKDF-Expand(subkey[T], "veilmq/1 walk" ‖ T + 1 (4), 32), the one before is erased
    output        = scope_key(subkey[T], scope, T, bump)            of one set of servers
    K             = XOR of the outputs of all sets

`deal` makes a single subkey for every set of n - f servers, so that any f servers together lack the subkey of the set
that excludes them; `chain` is the case of one set to which every server belongs. n = 3 has no f >= 1 with n >= 3f + 1:
sets of two still keep every single server from deriving a key, and one may be down, but none may lie.

Encoded for a file that only the server reads (0600):

    opening(3: version, kind 18, flags 0)  count(1: 1 or 2), each: deal: first epoch(4) random(8)
    servers(1; 0: chain) faults(1) number(1) epoch(4)  count(2), each: set(2) subkey(32)

Not here: who gets an output (`issuing`), its use by a reader (`fetching`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from keys import frames
from keys.epochs import EPOCH_MAX, KEY_BYTES, KeyName, scope_key
from keys.errors import BadFrame, KeyGone, KeysError, NotReady, OurFault

DEAL_BYTES = 12  # first epoch and 8 random bytes: later deals sort behind earlier ones
THRESHOLD_SERVERS_MIN = 3
THRESHOLD_SERVERS_MAX = 10  # 120 subkeys; 16 servers would have 4,368 and answers of 100 kB a key
WALK_STEPS_MAX = 10_000  # in one call; stops a wrong clock from holding the server up for hours
_WALK = b"veilmq/1 walk"


@lru_cache(maxsize=16)
def sets_of(servers: int, faults: int) -> tuple[frozenset[int], ...]:
    """Returns the sets holding a subkey each, in order, as numbers 1 to n of their servers. `servers` 0: a chain.

    Raises `OurFault` for a number of servers that cannot bear so many faults.
    """
    if servers == faults == 0:
        return (frozenset(),)
    if not THRESHOLD_SERVERS_MIN <= servers <= THRESHOLD_SERVERS_MAX or faults < 0 or servers < 3 * faults + 1:
        raise OurFault(
            f"{servers} key servers do not bear {faults} faulty ones; take {THRESHOLD_SERVERS_MIN} to "
            f"{THRESHOLD_SERVERS_MAX} and at least 3 f + 1"
        )
    size = servers - max(1, faults)
    return tuple(frozenset(members) for members in combinations(range(1, servers + 1), size))


def sets_held(servers: int, faults: int, number: int) -> tuple[int, ...]:
    """Returns the indices of the sets that server `number` belongs to; the one set of a chain has every server."""
    return tuple(i for i, members in enumerate(sets_of(servers, faults)) if number in members or not servers)


@dataclass(frozen=True, slots=True)
class Generation:
    """The subkeys of a server from one deal, walked to `epoch`. No earlier epoch can be derived from them.

    `deal`: 12 bytes, its name. `servers`, `faults`, `number`: the service and the server's number in it; zeros in a
    chain.
    """

    deal: bytes
    servers: int
    faults: int
    number: int
    epoch: int
    subkeys: tuple[tuple[int, bytes], ...] = field(repr=False)

    @property
    def first_epoch(self) -> int:
        """The first epoch in which this generation counts."""
        return int.from_bytes(self.deal[:4])

    def at_epoch(self, epoch: int) -> Generation:
        """Returns the generation walked to `epoch`. Raises `KeyGone` for an earlier epoch, `NotReady` for one too far
        ahead.
        """
        if epoch < self.epoch:
            raise KeyGone(f"what issues keys of epoch {epoch} was erased")
        if epoch - self.epoch > WALK_STEPS_MAX:
            raise NotReady(f"epoch {epoch} is {epoch - self.epoch} epochs ahead of this key server")
        subkeys = self.subkeys
        for step in range(self.epoch + 1, epoch + 1):
            info = _WALK + step.to_bytes(4)
            subkeys = tuple((number, _expand(subkey, info)) for number, subkey in subkeys)
        return replace(self, epoch=epoch, subkeys=subkeys)

    def outputs(self, name: KeyName) -> tuple[tuple[int, bytes], ...]:
        """Returns (set, output) for every set of this server. `self.epoch` has to be the name's."""
        if name.epoch != self.epoch:
            raise OurFault(f"outputs of epoch {name.epoch} out of subkeys of epoch {self.epoch}; walk there first")
        return tuple((number, scope_key(subkey, *name)) for number, subkey in self.subkeys)

    def _check(self, error: type[KeysError]) -> None:
        try:
            held = sets_held(self.servers, self.faults, self.number)
        except OurFault as fault:
            raise error(str(fault)) from None
        if tuple(index for index, _ in self.subkeys) != held or not held:
            raise error("key material for other sets than this server's; take the file that is for this server")
        if not self.first_epoch <= self.epoch <= EPOCH_MAX or len(self.deal) != DEAL_BYTES:
            raise error("key material of an epoch before its first")
        if any(len(subkey) != KEY_BYTES for _, subkey in self.subkeys):
            raise error(f"subkeys have {KEY_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class Material:
    """A key server's material: a generation and, after `rekey`, the one that follows it."""

    generations: tuple[Generation, ...]

    def __post_init__(self) -> None:
        self._check(OurFault)

    @property
    def epoch(self) -> int:
        """The oldest epoch whose keys this material can derive."""
        return self.generations[0].epoch

    def generation_of(self, epoch: int) -> Generation:
        """Returns the generation in force in that epoch, not walked there. Raises `KeyGone` before the first."""
        if epoch < self.epoch:
            raise KeyGone(f"what issues keys of epoch {epoch} was erased")
        return [generation for generation in self.generations if generation.first_epoch <= epoch][-1]

    def walked(self, epoch: int) -> Material:
        """Returns material from which nothing before `epoch` can be derived; walks at most `WALK_STEPS_MAX` steps at
        once.
        """
        target = min(epoch, self.epoch + WALK_STEPS_MAX)
        if len(self.generations) > 1 and self.generations[1].first_epoch <= target:
            return Material(self.generations[1:]).walked(target)
        if target <= self.epoch:
            return self
        return Material((self.generations[0].at_epoch(target), *self.generations[1:]))

    def followed_by(self, later: Material) -> Material:
        """Returns this material and, from its first epoch on, the newer deal of `veilmq trust rekey`.

        A file taken after its first epoch replaces the held material, a rekey before its first epoch is replaced, and
        a file
        taken a second time changes nothing. Raises `OurFault` for an older deal than the one in force.
        """
        following = later.generations[0]
        if any(following.deal == held.deal for held in self.generations):
            return self
        first = self.generations[0]
        if following.first_epoch < first.first_epoch:
            raise OurFault(
                f"key material from epoch {following.first_epoch} on is older than what is held, from epoch "
                f"{first.first_epoch} on; take the file of the last rekey"
            )
        return later if following.first_epoch <= first.epoch else Material((first, following))

    def encode(self) -> bytes:
        """Returns the content of the file."""
        parts = [frames.opening(frames.Kind.KEY_MATERIAL), frames.number(len(self.generations), 1)]
        for g in self.generations:
            parts += [g.deal, bytes((g.servers, g.faults, g.number)), frames.number(g.epoch, 4)]
            parts += [frames.number(len(g.subkeys), 2)]
            parts += [frames.number(index, 2) + subkey for index, subkey in g.subkeys]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Material:
        """Reads the content of a file. Raises `BadFrame` for other bytes."""
        reader = frames.Reader(data)
        reader.opening(frames.Kind.KEY_MATERIAL)
        generations = tuple(_read_generation(reader) for _ in range(reader.number(1)))
        reader.expect_end()
        try:
            return cls(generations)
        except OurFault as error:
            raise BadFrame(str(error)) from None

    def _check(self, error: type[KeysError]) -> None:
        if len(self.generations) not in (1, 2):
            raise error("key material has one generation, or two")
        for generation in self.generations:
            generation._check(error)
        if len(self.generations) == 2:
            first, second = self.generations
            if not max(first.first_epoch, first.epoch) < second.first_epoch:
                raise error("generations of key material follow each other")

    def __reduce__(self) -> str:
        raise OurFault("key material is not pickled: encode it, for a file that nobody else reads")


def deal(servers: int, faults: int, first_epoch: int, random: Callable[[int], bytes]) -> list[Material]:
    """Returns new material for servers 1 to n of a threshold service, in this order, to count from `first_epoch` on.

    `random(n)`: n uniformly random secret bytes. Raises `OurFault` if so many servers do not bear so many faults.
    """
    if not servers:
        raise OurFault("a threshold service without servers; what needs no threshold is made by `chain`")
    name = frames.number(first_epoch, 4) + random(DEAL_BYTES - 4)
    subkeys = [random(KEY_BYTES) for _ in sets_of(servers, faults)]
    return [
        _material(name, servers, faults, number, [(i, subkeys[i]) for i in sets_held(servers, faults, number)])
        for number in range(1, servers + 1)
    ]


def chain(first_epoch: int, random: Callable[[int], bytes]) -> Material:
    """Returns new material that every server of a chain gets, to count from `first_epoch` on."""
    name = frames.number(first_epoch, 4) + random(DEAL_BYTES - 4)
    return _material(name, 0, 0, 0, [(0, random(KEY_BYTES))])


def combine(outputs: Sequence[bytes]) -> bytes:
    """Returns the scope key: the XOR of the outputs (32 bytes each) of all sets of key servers."""
    key = 0
    for output in outputs:
        key ^= int.from_bytes(output)
    return key.to_bytes(KEY_BYTES)


def _material(name: bytes, servers: int, faults: int, number: int, subkeys: Sequence[tuple[int, bytes]]) -> Material:
    epoch = int.from_bytes(name[:4])
    return Material((Generation(name, servers, faults, number, epoch, tuple(subkeys)),))


def _read_generation(reader: frames.Reader) -> Generation:
    deal_name = reader.take_bytes(DEAL_BYTES)
    servers, faults, number, epoch = reader.number(1), reader.number(1), reader.number(1), reader.number(4)
    subkeys = tuple((reader.number(2), reader.take_bytes(KEY_BYTES)) for _ in range(reader.number(2)))
    return Generation(deal_name, servers, faults, number, epoch, subkeys)


def _expand(key: bytes, info: bytes) -> bytes:
    return HKDFExpand(hashes.SHA256(), KEY_BYTES, info).derive(key)
