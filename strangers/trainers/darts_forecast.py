"""Fits a forecast with Darts, which runs Lightning inside."""

import numpy as np
from darts import TimeSeries
from darts.models import NBEATSModel
from trial import Trial


def main() -> None:
    trial = Trial(steps=120)
    hours = np.arange(40 * 32 + 35, dtype=np.float32)
    values = np.sin(hours / 12) + 0.1 * np.random.default_rng(0).normal(size=len(hours))
    series = TimeSeries.from_values(values.astype(np.float32))
    model = NBEATSModel(
        input_chunk_length=24,
        output_chunk_length=12,
        num_stacks=4,
        layer_widths=128,
        batch_size=32,
        n_epochs=trial.steps // 40,
        random_state=0,
        pl_trainer_kwargs={"accelerator": "cpu", "enable_progress_bar": False, "logger": False},
    )
    with trial.loop():
        model.fit(series)
    trial.write(model.trainer.global_step, model.model)


if __name__ == "__main__":
    main()
