"""Trains a classifier with Poutyne's Model, which has the methods of Keras."""

from poutyne import Model
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=120)
    x, y = classes(30 * 256 + 512)
    network = classifier()
    model = Model(network, "adam", "cross_entropy", batch_metrics=["accuracy"], device="cpu")
    with trial.loop():
        history = model.fit(
            x[512:],
            y[512:],
            validation_data=(x[:512], y[:512]),
            epochs=trial.steps // 30,
            batch_size=256,
            progress_options={"coloring": False},
        )
    trial.write(30 * len(history), network, [epoch["loss"] for epoch in history])


if __name__ == "__main__":
    main()
