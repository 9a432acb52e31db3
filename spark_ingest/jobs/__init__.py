"""Ready-made queries over the streams, and the command running them.

Imports the public surface of the package.
"""

from __future__ import annotations

from spark_ingest.jobs.queries import during, entities, fleet, late, numbers, timeline, windows

__all__ = ["during", "entities", "fleet", "late", "numbers", "timeline", "windows"]
