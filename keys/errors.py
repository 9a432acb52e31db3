"""The errors of `keys`, a class for each fault, so that a caller knows whose fault it was without reading a message.

    KeysError
    ├── OurFault (also ValueError)   an argument or a configuration of our own side is wrong
    ├── BadFrame                     bytes from elsewhere are malformed, or of an unknown version or flag
    ├── BadSignature                 a signature, or the identity that it is checked with, does not fit
    ├── BadShare                     a share cannot belong where it claims to belong
    ├── NotEnoughShares              too few pieces or shares; more may come
    ├── UnknownView                  a view of a region that did not reach us yet
    ├── BadContent                   the data key or the sealed content does not fit the headers
    ├── WrongEpochKey                the scope's epoch key is another one; the shares are not to blame
    ├── NotAuthorised                the policy grants no such right
    ├── Expired                      a certificate or a key is past its end
    ├── Replayed                     a statement, a sequence or an answer was seen before
    ├── NotFresh                     a time is too old, or its clock and ours differ too much
    ├── Superseded                   a later life of the author had begun before
    ├── TooOften                     a member asks more often than it needs to
    ├── TooEarly                     the keys of an epoch are not issued yet
    ├── KeyGone                      the material of an epoch was erased, and nothing was kept for the asker
    ├── UnknownKey                   no key of that name exists under the policy at hand
    └── NotReady                     a key server lacks material that it needs to answer

Messages name sizes, names and places, never key material: they go to logs. This module knows no MQTT reason codes; the
code speaking MQTT maps these classes to reason codes.
"""

# ruff: noqa: N818  the names say whose fault it was; "Error" would add nothing

from __future__ import annotations


class KeysError(Exception):
    """The base of all errors of this package.

    `author`: the party id whose verified statement is refused; empty if no statement was verified. `may_be_late`: the
    sender may have accepted the statement while it was still valid.
    """

    author: bytes = b""
    may_be_late: bool = False


class OurFault(KeysError, ValueError):
    """The caller passed something that can never work; the message names cause and cure."""


class BadFrame(KeysError):
    """A frame is truncated, has trailing bytes, is not canonical, or is of an unknown version or flag."""


class BadSignature(KeysError):
    """A signature does not verify, or belongs to somebody else than the frame names."""


class BadShare(KeysError):
    """A share has an impossible coordinate, size, depth, view or tag."""


class UnknownView(KeysError):
    """A key was split for a view that is not in force here yet; it may be so where the key was made."""


class NotEnoughShares(KeysError):
    """Too few pieces or shares to put a whole together; waiting for more is reasonable."""


class BadContent(KeysError):
    """Content does not open, or a data key does not fit its commitment."""


class WrongEpochKey(KeysError):
    """The key check value of the header names another epoch key than the one at hand (docs/protocol.md §2.8, kcv)."""


class NotAuthorised(KeysError):
    """The party has no right to do this under the policy at hand."""


class Expired(KeysError):
    """The certificate or key is past its end."""


class Replayed(KeysError):
    """A statement, sequence or answer was accepted before, or was never asked for."""


class NotFresh(KeysError):
    """A stated time is too far from ours."""


class Superseded(KeysError):
    """An earlier life of a party made a statement after a later life had begun: its identity runs twice."""


class TooOften(KeysError):
    """An asker used up its requests; they come back with time."""


class TooEarly(KeysError):
    """Keys of that epoch are not issued yet; asking later is reasonable."""


class KeyGone(KeysError):
    """The epoch is erased here, and nothing was kept for this asker."""


class UnknownKey(KeysError):
    """The policy has no such scope with keys, or not that bump of it."""


class NotReady(KeysError):
    """The key server's material does not reach that epoch or is not for this list of servers."""
