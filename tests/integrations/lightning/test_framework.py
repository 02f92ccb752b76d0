"""Which Lightning package an object belongs to, and what happens without any."""

from __future__ import annotations

import pytest

MISSING = """
import sys
for name in ("lightning", "pytorch_lightning"):
    sys.modules[name] = None
from stepscope.errors import MissingExtra
from stepscope.integrations import lightning
for name in ("StepscopeCallback", "StepscopeLogger", "ThroughputMonitorCallback"):
    try:
        getattr(lightning, name)()
    except MissingExtra as error:
        print(error)
"""


def test_without_lightning_the_error_says_what_to_install(run_script) -> None:
    done = run_script(MISSING)
    assert done.stderr == ""
    advice = "needs an extra package. Install it with: pip install 'stepscope[lightning]'"
    names = ("StepscopeCallback", "StepscopeLogger", "ThroughputMonitorCallback")
    assert done.stdout.splitlines() == [f"{name} {advice}" for name in names]


ONE_PACKAGE = """
import sys
from stepscope.integrations.lightning import StepscopeCallback
import pytorch_lightning as pl
callback = StepscopeCallback()
print(isinstance(callback, pl.Callback), "lightning.pytorch" in sys.modules)
"""


@pytest.mark.slow
def test_only_the_package_that_the_program_uses_is_imported(run_script) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    done = run_script(ONE_PACKAGE)
    assert done.stdout == "True False\n", done.stderr
