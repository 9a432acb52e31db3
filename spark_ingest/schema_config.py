"""Schemas by topic filter, in the configuration of a job or of a receiver.

    climate: {topic: plant/+/climate, schema: climate.json, form: cbor}
    motors: {topic: plant/+/motor/#, schema: motors.proto#Motor}

A job reads such a file itself. A receiver with option `schemas` keeps the file in the spool as `schemas.json`, with the
texts of all schemas, and follows changes; then each query of the spool has the schemas. The receiver opens no payload:
rows get columns in executors. Not here: Spark (`typed`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway.base.log_events import LogEvent
from gateway.files import FileStamp, stamp, write_durably
from keys.errors import KeysError
from keys.topictokens import check_filter
from spark_ingest.errors import BadOption
from spark_ingest.payloads import KEPT, BadSchema, SchemaFile, newest_texts

ENTRIES_MAX = 256
CONFIG_BYTES_MAX = 1 << 20
_NEEDED, _KEYS = {"topic", "schema"}, {"topic", "schema", "form"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema of a topic filter. `schema`: the path of the file, of Protocol Buffers also PATH#MESSAGE."""

    topic: str
    schema: str
    form: str = "json"


def read_entries(config: Path) -> dict[str, SchemaEntry]:
    """Returns the entries of a YAML file by name, with paths of schemas from its folder. Raises BadOption."""
    try:
        with config.open("rb") as file:
            text = file.read(CONFIG_BYTES_MAX + 1)  # a device has no size, and no end
        told = None if len(text) > CONFIG_BYTES_MAX else yaml.safe_load(text.decode())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadOption(f"{config}: {(str(error) or 'nested too deep').splitlines()[0]}") from None
    if not isinstance(told, dict) or not 0 < len(told) <= ENTRIES_MAX:
        raise BadOption(
            f"{config}: no schemas, or more than {ENTRIES_MAX}; write e.g. "
            "climate: {topic: plant/+/climate, schema: climate.json}"
        )
    return {str(name): _entry(config, str(name), each) for name, each in told.items()}


def opened_schemas(config: Path) -> dict[str, tuple[str, SchemaFile]]:
    """Returns topic filter and schema by name: of a YAML file, or of a spool and its receiver. Raises BadOption."""
    if not config.is_dir():
        return {name: (each.topic, _opened(each)) for name, each in read_entries(config).items()}
    path = config / KEPT
    try:
        kept = json.loads(path.read_text("utf-8"))
        return {name: (each["topic"], SchemaFile.open_kept(path, name)) for name, each in kept.items()}
    except FileNotFoundError:
        raise BadOption(f"{config}: its receiver has no schemas; give it --schemas FILE, or name a YAML file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadOption(f"{path}: {error}; a receiver with --schemas FILE writes it again") from None


class KeptSchemas:
    """The schemas of a receiver in its spool: written at the start, and again after a change of any file."""

    def __init__(self, config: Path, spool: Path) -> None:
        self._config = config
        self._path = spool / KEPT
        self._stamps: dict[Path, FileStamp | None] = {}

    def keep_schemas(self) -> None:
        """Writes the schemas. Raises BadOption for a file that cannot be used, OSError."""
        self._stamps = {self._config: stamp(self._config)}
        entries = read_entries(self._config)
        files = {Path(each.schema.partition("#")[0]) for each in entries.values()}
        self._stamps |= {path: stamp(path) for path in files}
        before = self._kept()
        kept = {}
        for name, each in entries.items():
            schema = _opened(each)
            texts = newest_texts(schema.name, (*schema.texts, *before.get((name, Path(each.schema).name), ())))
            kept[name] = asdict(each) | {"schema": Path(each.schema).name, "texts": texts}
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._path, json.dumps(kept, ensure_ascii=False, indent=1).encode())

    def _kept(self) -> dict[tuple[str, str], list[str]]:
        """Returns the kept texts by entry and file, also of a run before."""
        try:
            kept = json.loads(self._path.read_text("utf-8"))
            return {(name, each["schema"]): [str(text) for text in each["texts"]] for name, each in kept.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def renew_schemas(self) -> None:
        """Writes the schemas again if a file has changed; a broken file changes nothing, and is a line in the log."""
        if all(stamp(path) == before for path, before in self._stamps.items()):
            return
        try:
            self.keep_schemas()
        except (BadOption, OSError) as error:
            LogEvent.RECEIVER_SCHEMAS_STAY.say(_log, error)
        else:
            LogEvent.RECEIVER_SCHEMAS.say(_log, self._config)


def _entry(config: Path, name: str, told: Any) -> SchemaEntry:
    fits = isinstance(told, dict) and _NEEDED <= told.keys() <= _KEYS
    if not fits or not all(isinstance(value, str) for value in told.values()):
        raise BadOption(f"{config}: {name} needs topic and schema, may have form, and nothing else; all are text")
    try:
        check_filter(told["topic"])
    except KeysError:
        raise BadOption(f"{config}: {name}: topic={told['topic']!r} is no MQTT topic filter") from None
    return SchemaEntry(told["topic"], str(config.parent.absolute() / told["schema"]), told.get("form", "json"))


def _opened(entry: SchemaEntry) -> SchemaFile:
    try:
        return SchemaFile.open(entry.schema, entry.form)
    except BadSchema as error:
        raise BadOption(str(error)) from None
