"""The base class of errors an operator has to mend, raised in any room, and the line of an error of the system."""

from __future__ import annotations


class OperatorError(Exception):
    """An error of the operator: bad input, bad configuration, something missing. Its text is a line, `cause; cure`;
    the command line prints the text and ends with exit status 2, without a traceback. It holds no key, share or
    payload.
    """

    @property
    def cause(self) -> str:
        """The fault and its place."""
        return str(self).rpartition("; ")[0] or str(self)

    @property
    def cure(self) -> str:
        """The remedy; empty if the cause says it."""
        before, separator, after = str(self).rpartition("; ")
        return after if separator and before else ""


def file_fault(error: OSError) -> str:
    """Returns a line, `cause; cure`, for an error of the system; without a cure if the error names no file."""
    if error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}; correct the path, its owner or its permissions"
    return str(error)
