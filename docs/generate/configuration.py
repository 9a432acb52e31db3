"""Every key of every YAML file with type, default and meaning, from the pydantic models that read them."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gateway.auth.acl_file import AclFilePlugin, AclPlugin
from gateway.auth.dynamic import DynamicPlugin
from gateway.auth.oidc import OidcPlugin
from gateway.auth.passwords import PasswordPlugin
from gateway.base.config import Settings
from gateway.owner.description import Description
from gateway.owner.replica_numbers import PlacingEntry
from gateway.scram_plugin import ScramPlugin
from gateway.stock import GatewayPlugin

INTRODUCTION = """# Configuration

Made from the models that read the files, when this site is built. A key that is not here is a mistake, and the file
is refused with one line: file, place, cause and cure. `veilmq check -c FILE` finds it before anything starts.

Relative paths are taken from the directory of the file. Times end in `_s` (seconds), sizes in `_bytes`.
"""
WORDS = {
    str: "text", int: "whole number", float: "number", bool: "`true` or `false`", Path: "path", Any: "anything",
}  # fmt: skip
FILES: tuple[tuple[str, str, type[BaseModel]], ...] = (
    (
        "The file of a broker",
        "For `veilmq broker -c FILE`, in every role: edge broker, gateway, replica, key server, broker that traces. "
        "Examples: `configs/edge.yaml`, `gateway.yaml`, `replica.yaml`, `keyserver.yaml`, `traces.yaml`.",
        Settings,
    ),
    (
        "The owner's description of an overlay",
        "For `veilmq overlay sign FILE`. Example: `configs/overlay.yaml`.",
        Description,
    ),
    (
        "The file of a placement",
        "For `veilmq overlay place FILE`. Example: `configs/place.yaml`.",
        PlacingEntry,
    ),
)


PLUGINS = (ScramPlugin, PasswordPlugin, OidcPlugin, AclFilePlugin, AclPlugin, DynamicPlugin, GatewayPlugin)


def configuration_page() -> str:
    """Markdown. Raises LookupError for a key without a description."""
    parts = [INTRODUCTION]
    for title, said, model in FILES:
        parts += [f"## {title}\n", said, "", *_section(model, "")]
    parts += [
        "## The file of a receiver\n",
        "For `veilmq ingest run --config FILE`: [options of Spark](spark.md#options).\n",
    ]
    parts += ["## Plugins of ours\n", *_plugins()]
    return "\n".join(parts)


def _plugins() -> Iterator[str]:
    yield "Named by their class under `plugins`, as [amqtt's](../how-to/amqtt.md#plugins) are."
    yield "`GatewayPlugin` is for amqtt's own broker."
    yield "[Authentication](broker.md#authentication) says what they do.\n"
    yield "| plugin | options |"
    yield "|---|---|"
    for plugin in PLUGINS:
        options = ", ".join(f"`{option.name}`" for option in fields(plugin.Config))
        yield f"| `{plugin.__module__}.{plugin.__qualname__}` | {options} |"
    yield ""


def _section(model: type[BaseModel], place: str, kind: str = "") -> Iterator[str]:
    """The table of one mapping, then one for each mapping inside it. `kind`: which of several it is."""
    if place:
        yield f"### `{place}`{kind}\n"
        yield _doc(model)
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    inner: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        models = list(_models(field.annotation))
        where = f"{place}.{name}" if place else name
        inner += [(where + _depth(field.annotation), each) for each in models]
        said = field.description
        if said is None:
            raise LookupError(f"{model.__name__}.{name} has no description; write one")
        yield f"| <code>{name.replace('_', '_<wbr>')}</code> | {_type(field)} | {_default(field)} | {_cell(said)} |"
    yield ""
    for where, each in inner:
        is_one_of_several = sum(where == other for other, _ in inner) > 1
        yield from _section(each, where, f": {_title(each)}" if is_one_of_several else "")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models that a value of this type holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for part in get_args(annotation) if get_origin(annotation) is not Annotated else get_args(annotation)[:1]:
            yield from _models(part)


def _depth(annotation: Any) -> str:
    """How an element of the value is reached: `[]` in a list, `.NAME` in a mapping."""
    found = get_origin(annotation)
    if found in (list, tuple):
        return "[]"
    if found is dict:
        return ".NAME"
    return ""


def _type(field: FieldInfo) -> str:
    written = _written(field.annotation)
    bounds = _bounds(field)
    return f"{written}{bounds}"


def _written(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _written(parts[0])
    if origin is Literal:
        return ", ".join(f"`{str(each).lower() if isinstance(each, bool) else each}`" for each in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_written(each) for each in parts if each is not type(None)))
    if origin is list:
        return f"list of {_written(parts[0])}"
    if origin is tuple:
        return "pair of " + _written(parts[0])
    if origin is dict:
        inner = _written(parts[1])
        return "mapping by name" if inner.startswith(("mapping", "anything")) else f"{inner}, by name"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{each.value}`" for each in annotation)
    return WORDS.get(annotation, str(annotation))


def _bounds(field: FieldInfo) -> str:
    found = {
        name: getattr(each, name) for each in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(each, name)
    }
    low = f"from {found['ge']:,}" if "ge" in found else f"above {found['gt']:,}" if "gt" in found else ""
    high = f"to {found['le']:,}" if "le" in found else f"below {found['lt']:,}" if "lt" in found else ""
    return f", {' '.join(filter(None, (low, high)))}" if low or high else ""


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "needed"
    if default is None or default in ([], {}, ()):
        return ""
    if isinstance(default, BaseModel):
        return "see below"
    if isinstance(default, dict):
        return "see below"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list | tuple):
        return ", ".join(f"`{each}`" for each in default)
    return f"`{default}`"


def _doc(model: type[BaseModel]) -> str:
    return re.sub(r"\s+", " ", (model.__doc__ or "").strip()) + "\n"


def _title(model: type[BaseModel]) -> str:
    """The first words of what it is."""
    return re.split(r"[.:] ", _doc(model))[0].strip().rstrip(".").lower()


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|").replace("<", "&lt;")
