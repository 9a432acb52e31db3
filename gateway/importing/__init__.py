"""Import of Mosquitto's files: its configuration becomes our YAML, its persistence file our data directory.

Imports `mqtt5`, `sessions` and `outbox`, and writes rows of the last two. Knows no running broker.
"""

from __future__ import annotations

from gateway.importing.loading import Loaded, load_db
from gateway.importing.mosquitto_conf import ConfError, read_conf
from gateway.importing.mosquitto_db import DbError
from gateway.importing.translated import Translated
from gateway.importing.translating import translate

__all__ = ["ConfError", "DbError", "Loaded", "Translated", "load_db", "read_conf", "translate"]
