"""SenML (RFC 8428) as resolved records, of JSON and of CBOR: names and times are whole, each record stands alone.

A pack is a list of records. Base fields (`bn`, `bt`, `bu`, `bv`, `bs`, `bver`) count from their record on and are
folded in (section 4.6). Times below 2**28 seconds count from the time of resolving (section 4.5.3) and stay relative
here: column `is_relative`. A pack that breaks a rule is a short reason without a word of the payload.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from typing import Any

from spark_ingest.payloads.cbor import plain_cbor
from spark_ingest.payloads.messagepack import NOT_UTF8, PAYLOAD_BYTES_MAX, PayloadError

VERSION = 10
RELATIVE_BELOW_S = 1 << 28
RECORDS_MAX = 10_000
LABELS = {
    -1: "bver", -2: "bn", -3: "bt", -4: "bu", -5: "bv", -6: "bs", 0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s",
    6: "t", 7: "ut", 8: "vd",
}  # fmt: skip
"""Names of CBOR's labels (RFC 8428, table 6)."""
_NUMBERS = ("bt", "bv", "bs", "v", "s", "t", "ut")
_TEXTS = ("bn", "bu", "n", "u", "vs", "vd")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-:./_]*")
_VALUES = ("v", "vs", "vb", "vd")
_TIME_MAX_S = (1 << 62) / 1e6


def decode_senml(payload: bytes) -> list[dict[str, Any]]:
    """Returns resolved records: name, unit, time_us, is_relative, one value, sum, update_s. Raises PayloadError."""
    pack = _json(payload) if payload[:1].strip()[:1] in (b"[", b"") else plain_cbor(payload)
    if not isinstance(pack, list) or not pack or not all(isinstance(each, dict) for each in pack):
        raise PayloadError("no list of records")
    if len(pack) > RECORDS_MAX:
        raise PayloadError(f"more than {RECORDS_MAX} records")
    base: dict[str, Any] = {}
    return [made for each in pack if (made := _resolved(_named(each), base)) is not None]


def _json(payload: bytes) -> Any:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise PayloadError(f"larger than {PAYLOAD_BYTES_MAX} bytes")
    try:
        return json.loads(payload.decode())
    except UnicodeDecodeError:
        raise PayloadError(NOT_UTF8) from None
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"malformed ({type(error).__name__})") from None


def _named(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record by the names of JSON, its fields checked."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        name = LABELS[int(key)] if re.fullmatch(r"-[1-6]|[0-8]", key) else key
        if name.endswith("_"):
            raise PayloadError("a field that has to be understood and is not")
        found[name] = value
    for name in _NUMBERS:
        if not _is_number(found.get(name, 0)):
            raise PayloadError(f"{name} is no number")
    for name in _TEXTS:
        _check_text(name, found.get(name, ""))
    if not isinstance(found.get("vb", False), bool):
        raise PayloadError("vb is no boolean")
    if found.get("bver", VERSION) != VERSION:
        raise PayloadError("another version than 10")
    return found


def _is_number(value: object) -> bool:
    """Returns True for a finite number that a double holds; a whole number in JSON may have any length."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _check_text(name: str, value: object) -> None:
    """Raises PayloadError for anything but text that UTF-8 holds: JSON may spell half of a surrogate pair."""
    if not isinstance(value, str):
        raise PayloadError(f"{name} is no text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PayloadError(NOT_UTF8) from None


def _sum(name: str, base: float, added: float) -> float:
    """Returns the sum of a base and a value. Raises PayloadError for a sum that no double holds."""
    total = base + added
    if not _is_number(total):
        raise PayloadError(f"{name} with its base is no number")
    return float(total)


def _resolved(record: dict[str, Any], base: dict[str, Any]) -> dict[str, Any] | None:
    """Returns a record with its base folded in; None of one that has only base fields. Updates the base."""
    base.update({name: record[name] for name in ("bn", "bt", "bu", "bv", "bs") if name in record})
    values = [name for name in _VALUES if name in record]
    if not values and "s" not in record:
        if {"n", "t", "u", "ut"} & record.keys():
            raise PayloadError("a record without a value")
        return None
    if len(values) > 1:
        raise PayloadError("a record with several values")
    name = base.get("bn", "") + record.get("n", "")
    if not _NAME.fullmatch(name):
        raise PayloadError("a name that RFC 8428 does not allow")
    time_s = base.get("bt", 0) + record.get("t", 0)
    if not abs(time_s) < _TIME_MAX_S:
        raise PayloadError("a time that no calendar has")
    sums = "s" in record or "bs" in base
    return {
        "name": name,
        "unit": record.get("u", base.get("bu")),
        "time_us": round(time_s * 1e6),
        "is_relative": time_s < RELATIVE_BELOW_S,
        "value": _sum("v", base.get("bv", 0), record["v"]) if "v" in record else None,
        "string_value": record.get("vs"),
        "boolean_value": record.get("vb"),
        "data_value": _data(record["vd"]) if "vd" in record else None,
        "sum": _sum("s", base.get("bs", 0), record.get("s", 0)) if sums else None,
        "update_s": float(record["ut"]) if "ut" in record else None,
    }


def _data(text: str) -> bytes:
    """Returns what base64, of either alphabet, with or without padding, stands for."""
    try:
        plain = text.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:  # of base64, and of text beyond ASCII
        raise PayloadError("vd is no base64") from None
