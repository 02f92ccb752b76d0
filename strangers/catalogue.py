"""The trainers: the script of each, how it is started, and what can be asked of it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(__file__).resolve().parent / "trainers"

TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ACCELERATE_LAUNCH = ("accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1")


@dataclass(frozen=True)
class Trainer:
    """A script that trains with one framework."""

    name: str
    package: str
    """The package on PyPI whose trainer it is; the table shows its version."""

    script: str = ""
    """Its file in `trainers/`, without `.py`; the name, if it is not given."""

    launcher: tuple[str, ...] = ()
    """The module that starts the script, and its arguments; without it, Python does."""

    ranks: int = 1
    has_callback: bool = False
    """Whether stepscope has a callback, or a tracker, for the framework."""

    tries_both: bool = False
    """Whether the callback is also tried under `stepscope run`: once for each framework."""

    can_resume: bool = False
    """Whether the script saves checkpoints and continues from them."""

    newest_only: bool = False
    """Whether it is not tried in an old version, because none runs with this PyTorch."""

    starts_processes: bool = False
    """Whether the loop that the script times also starts processes, which takes seconds."""

    true_findings: tuple[str, ...] = ("input.exposed_wait",)
    """Detectors that may be right: loaders without workers collate sample by sample while the model waits."""

    as_module: bool = False
    """Whether the script is started by `python -m`."""

    @property
    def file(self) -> Path:
        """The script."""
        return SCRIPTS / f"{self.script or self.name}.py"


TRAINERS = {
    trainer.name: trainer
    for trainer in (
        Trainer("lightning_automatic", "lightning", has_callback=True, tries_both=True, can_resume=True),
        Trainer("lightning_manual", "lightning", has_callback=True),
        Trainer("lightning_gan", "lightning", has_callback=True),
        Trainer("lightning_ddp", "lightning", ranks=2, has_callback=True, starts_processes=True),
        Trainer("lightning_spawn", "lightning", ranks=2, has_callback=True, starts_processes=True),
        Trainer("transformers_trainer", "transformers", has_callback=True, tries_both=True, can_resume=True),
        Trainer("accelerate_loop", "accelerate", has_callback=True, tries_both=True),
        Trainer("accelerate_launch", "accelerate", script="accelerate_loop", launcher=ACCELERATE_LAUNCH),
        Trainer("trl_sft", "trl", has_callback=True),
        Trainer("trl_grpo", "trl", newest_only=True),
        Trainer("sentence_transformers_pairs", "sentence-transformers", has_callback=True),
        Trainer("stable_baselines3_ppo", "stable-baselines3"),
        Trainer("stable_baselines3_sac", "stable-baselines3"),
        Trainer("skorch_classifier", "skorch"),
        Trainer("skorch_folds", "skorch"),
        Trainer("plain_loop", "torch", can_resume=True),
        Trainer("plain_module", "torch", script="plain_loop", as_module=True),
        Trainer("plain_ddp", "torch", launcher=TORCHRUN, ranks=2),
        Trainer("lbfgs_closure", "torch"),
        Trainer("fabric_loop", "lightning"),
        Trainer("pytorch_lightning_module", "pytorch-lightning", has_callback=True),
        Trainer("darts_forecast", "darts", newest_only=True),
        Trainer("ignite_engine", "pytorch-ignite"),
        Trainer("fastai_learner", "fastai", newest_only=True),
        Trainer("metric_learning", "pytorch-metric-learning"),
        Trainer("mmengine_runner", "mmengine", newest_only=True),
        Trainer("poutyne_model", "poutyne", newest_only=True),
        Trainer(
            "pykeen_pipeline",
            "pykeen",
            newest_only=True,
            true_findings=("input.exposed_wait", "host.gc"),  # it collects garbage after every epoch
        ),
        Trainer("keras_fit", "keras"),
        Trainer("tabnet_classifier", "pytorch-tabnet"),
        Trainer("gpytorch_regression", "gpytorch"),
        Trainer("pyro_svi", "pyro-ppl"),
        Trainer("geometric_graphs", "torch-geometric"),
    )
}
