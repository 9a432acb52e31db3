"""The base class of errors an operator has to mend, raised in any room."""

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
