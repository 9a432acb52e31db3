"""What an operator has to mend: the one base of such errors, whichever room raises them."""

from __future__ import annotations


class OperatorError(Exception):
    """Bad input, bad configuration, something missing. Its text is one line, `cause; cure`; the command line prints it
    and ends with exit status 2, without a traceback. It holds no key, share or payload."""

    @property
    def cause(self) -> str:
        """What is wrong, and where."""
        return str(self).rpartition("; ")[0] or str(self)

    @property
    def cure(self) -> str:
        """What to do about it; empty where the cause says it."""
        before, separator, after = str(self).rpartition("; ")
        return after if separator and before else ""
