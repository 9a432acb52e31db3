"""Topic tokens, under which wildcards still work, and the matching rules of topic filters (E1, docs/protocol.md §6.7).

Each level of a topic becomes base64url(HMAC-SHA256(key, depth byte ‖ level)[:16]): `+` and `#` keep their meaning,
since equal levels at equal depth have equal tokens. Tokens hide names from replicas and outsiders. They do not hide
equality, depth or frequency, and a single insider with the key can undo them by guessing names.

Not here: the trie finding subscriptions (`bridge.base.topics`), rotation of the key.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence

from keys.errors import OurFault

DEPTH_LIMIT = 256  # the depth is one byte of what is hashed
TOKEN_BYTES = 16
RETAINED_ID_BYTES = 16
TOPIC_BYTES_LIMIT = 65_535  # MQTT 5.0 §1.5.4


def tokenise_topic(topic: str, key: bytes, control_root: str = "$veil") -> str:
    """Returns the wire topic of `topic`. Topics starting with `$` and those of the control root stay unchanged.

    `key`: 32 bytes from `epochs.token_key`. Raises `OurFault` for an invalid topic name.
    """
    check_topic(topic)
    if _left_alone(topic, control_root):
        return topic
    return _levels(topic, key)


def tokenise_filter(topic_filter: str, key: bytes, control_root: str = "$veil") -> str:
    """Returns the wire filter of a topic filter; `+`, `#` and the prefix `$share/{group}/` stay unchanged.

    Raises `OurFault` for an invalid filter.
    """
    check_filter(topic_filter)
    prefix, bare = split_share(topic_filter)
    if _left_alone(bare, control_root):
        return topic_filter
    return prefix + _levels(bare, key)


def retained_id(key: bytes | None, topic: str) -> bytes:
    """Returns the 16-byte name of a clear topic under which replicas retain its value.

    The name is of all levels together, so that a prefix shows nothing. `key`: the scope's; 32 zero bytes where names
    are
    public.
    """
    return hmac.digest(key or bytes(32), topic.encode(), "sha256")[:RETAINED_ID_BYTES]


def _left_alone(topic: str, control_root: str) -> bool:
    return topic == control_root or topic.startswith(("$", control_root + "/"))


def _levels(name: str, key: bytes) -> str:
    levels = name.split("/")
    if len(levels) > DEPTH_LIMIT:
        raise OurFault(f"a topic of {len(levels)} levels; tokens allow {DEPTH_LIMIT}")
    return "/".join(level if level in ("+", "#") else _token(key, depth, level) for depth, level in enumerate(levels))


def _token(key: bytes, depth: int, level: str) -> str:
    mac = hmac.digest(key, bytes([depth]) + level.encode(), "sha256")
    return base64.urlsafe_b64encode(mac[:TOKEN_BYTES]).rstrip(b"=").decode("ascii")


# ---------------------------------------------------------------------------------------------- matching


def split_share(topic_filter: str) -> tuple[str, str]:
    """Returns (`$share/{group}/`, filter) of a shared subscription, ("", filter) of any other (MQTT 5.0 §4.8.2)."""
    if not topic_filter.startswith("$share/"):
        return "", topic_filter
    end = topic_filter.find("/", len("$share/")) + 1
    return topic_filter[:end], topic_filter[end:]


def _check_string(value: str, what: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise OurFault(f"a {what} is valid UTF-8 without lone surrogates") from None
    if not 1 <= size <= TOPIC_BYTES_LIMIT or "\0" in value:
        raise OurFault(f"a {what} has 1 to {TOPIC_BYTES_LIMIT} bytes and no NUL (MQTT 5.0 §4.7.3)")


def check_topic(topic: str) -> None:
    """Raises `OurFault` unless `topic` is a topic name: not empty, no wildcard, no NUL (MQTT 5.0 §4.7)."""
    _check_string(topic, "topic")
    if "+" in topic or "#" in topic:
        raise OurFault(f"topic {topic!r} has a wildcard: only filters may")


def check_filter(topic_filter: str) -> None:
    """Raises `OurFault` unless wildcards fill whole levels and `#` is the last one (MQTT 5.0 §4.7.1)."""
    _check_string(topic_filter, "topic filter")
    prefix, bare = split_share(topic_filter)
    if not bare or (topic_filter.startswith("$share/") and not _is_group(prefix)):
        raise OurFault(f"filter {topic_filter!r}: a shared subscription is $share/{{group}}/{{filter}}")
    levels = bare.split("/")
    for index, level in enumerate(levels):
        if ("+" in level and level != "+") or ("#" in level and (level != "#" or index != len(levels) - 1)):
            raise OurFault(f"filter {topic_filter!r}: + and # stand alone in a level, # only in the last")


def _is_group(prefix: str) -> bool:
    group = prefix.removeprefix("$share/").removesuffix("/")
    return bool(group) and not any(sign in group for sign in "+#")


def matches(topic_filter: str, topic: str) -> bool:
    """Returns True if a filter without `$share` matches a topic name (MQTT 5.0 §4.7).

    `a/#` matches `a`; a filter starting with a wildcard matches no topic starting with `$`.
    """
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    return _covers(topic_filter.split("/"), topic.split("/"))


def covers(granted: str, asked: str) -> bool:
    """Returns True if filter `granted` matches every topic that filter `asked` matches (neither with `$share`)."""
    if asked.startswith("$") and granted[:1] in ("+", "#"):
        return False
    return _covers(granted.split("/"), asked.split("/"))


def _covers(granted: Sequence[str], asked: Sequence[str]) -> bool:
    for index, level in enumerate(granted):
        if level == "#":
            return True
        if index >= len(asked) or asked[index] == "#":
            return False
        if level not in ("+", asked[index]):
            return False
    return len(asked) == len(granted)
