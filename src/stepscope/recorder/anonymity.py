"""Builds the privacy rules that are applied before anything is recorded, from the settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import ConfigError
from stepscope.schema.privacy import Privacy
from stepscope.schema.redact import add_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.config.sections import Privacy as PrivacySettings


def privacy_of(settings: PrivacySettings, environment: Mapping[str, str] = os.environ) -> Privacy:
    """The privacy rules of the settings; raises ConfigError for invalid ones, so that nothing is recorded."""
    for name, pattern in settings.rules.items():
        try:
            add_rule(name, pattern)
        except ValueError as error:
            raise ConfigError(f"privacy.rules.{name}: {error}") from error
    home = environment.get("HOME") if settings.shorten_home else None
    hides_people = settings.personal_data
    if hides_people is None:
        hides_people = settings.salt_file is not None
    if settings.salt_file is None:
        return Privacy(home=home, personal_data=hides_people)
    host = os.uname().nodename
    users = {environment.get(name, "") for name in ("USER", "LOGNAME")} - {"", "root"}
    names = (host, host.partition(".")[0], *sorted(users))
    return Privacy(_salt(settings.salt_file), names, home, personal_data=hides_people)


def _salt(path: str) -> str:
    try:
        salt = Path(path).expanduser().read_text().strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"privacy.salt_file is {path!r}, which cannot be read: {error}") from error
    if not salt:
        raise ConfigError(f"privacy.salt_file is {path!r}, which is empty; write a long random text into it.")
    return salt
