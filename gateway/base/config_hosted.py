"""`hosted:` in a configuration: logins of a gateway at hosted brokers of its region."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from gateway.base.limits import Model


class Hosted(Model):
    """Login at one hosted broker of this region."""

    username: str | None = Field(default=None, description="our account there")
    password_file: Path | None = Field(default=None, description="a private file (mode 0600) with the password alone")
    certfile: Path | None = Field(default=None, description="our client certificate for this broker, PEM")
    keyfile: Path | None = Field(default=None, description="its key, a private file")

    @model_validator(mode="after")
    def _is_complete(self) -> Hosted:
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile go together; give both")
        if self.password_file is not None and self.username is None:
            raise ValueError("password_file needs username; give both")
        return self

    def anchored(self, directory: Path) -> Hosted:
        """Returns the settings with relative paths taken from a directory."""
        paths = {key: getattr(self, key) for key in ("password_file", "certfile", "keyfile")}
        return self.model_copy(update={key: directory / p.expanduser() for key, p in paths.items() if p is not None})
