"""Adds stepscope's callback to trainers of Lightning and Transformers that have none."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from stepscope.attach.script import monitors_created

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from stepscope.attach.torch_hooks import Program

CALLBACKS = {
    "transformers": "stepscope.integrations.transformers",
    "lightning": "stepscope.integrations.lightning",
    "pytorch_lightning": "stepscope.integrations.lightning",
}
"""The module with the class `StepscopeCallback` for each framework."""

NAME = "StepscopeCallback"


def install(module: ModuleType, program: Program) -> None:
    """Wraps the constructor of a framework's trainer."""
    framework = module.__name__.partition(".")[0]
    trainer = module.Trainer
    trainer.__init__ = _wrapped(trainer.__init__, framework, program)


def _wrapped(original: Callable[..., Any], framework: str, program: Program) -> Callable[..., Any]:
    @functools.wraps(original)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it replaces that method
        original(self, *arguments, **options)
        try:
            _add_callback(self, framework, program)
        except Exception as error:  # noqa: BLE001 - the training goes on; its steps are still recorded
            program.say(f"the callback for {framework} was not added: {error}")

    return __init__


def _add_callback(trainer: Any, framework: str, program: Program) -> None:
    if monitors_created():
        return  # the script records itself
    is_lightning = framework != "transformers"
    callbacks = trainer.callbacks if is_lightning else trainer.callback_handler.callbacks
    if any(type(callback).__name__ == NAME for callback in callbacks):
        return
    try:
        kind = getattr(importlib.import_module(CALLBACKS[framework]), NAME)
    except (ImportError, AttributeError):
        return  # steps are then recorded as those of any other loop
    params = program.params()
    callback = kind() if params is None else kind(params=params)
    program.trainer = f"{type(trainer).__name__} ({framework})"
    if is_lightning:
        callbacks.insert(0, callback)  # checkpoint callbacks must stay last
    else:
        trainer.add_callback(callback)
