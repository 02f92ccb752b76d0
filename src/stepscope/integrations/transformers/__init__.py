"""Callbacks for Transformers' `Trainer`, and for trainers built on it: TRL, sentence-transformers."""

from stepscope.errors import MissingExtra

try:
    from stepscope.integrations.transformers.callback import StepscopeCallback
    from stepscope.integrations.transformers.gpu_callback import GPUMonitoringCallback
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"transformers", "torch", "accelerate"}:
        raise
    raise MissingExtra("transformers", "stepscope.integrations.transformers") from error

__all__ = ["GPUMonitoringCallback", "StepscopeCallback"]
