"""Names metrics in the journal: without secrets, and with a unique name for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.journal import layout
from stepscope.recorder.values import MAX_NAME
from stepscope.schema.redact import redact_start

if TYPE_CHECKING:
    from stepscope.schema.privacy import Privacy


class KeyNames:
    """Caches the recorded name of each key; called once for each set of keys, not for each row."""

    def __init__(self, privacy: Privacy) -> None:
        self._privacy = privacy
        self._names: dict[object, str] = {}
        self._taken: set[str] = set()

    def __call__(self, key: object) -> str:
        """The name of a key; keys that have the same name after redaction are numbered."""
        name = self._names.get(key)
        if name is None:
            plain = layout.clean(key)
            name = safe = self._privacy.text(redact_start(plain, MAX_NAME))
            number = 1
            while safe != plain and name in self._taken:
                number += 1
                name = f"{safe}#{number}"
            self._names[key] = name
            self._taken.add(name)
        return name
