"""Embeds a knowledge graph with PyKEEN's pipeline, which builds model, loader and optimizer itself."""

import numpy as np
from pykeen.pipeline import pipeline
from pykeen.triples import TriplesFactory
from trial import Trial


def main() -> None:
    trial = Trial(steps=120)
    generator = np.random.default_rng(0)
    numbers = np.unique(
        np.stack([generator.integers(0, high, 6000) for high in (400, 12, 400)], axis=1), axis=0
    )[:5120]
    triples = np.char.add(np.array(["head", "relation", "tail"]), numbers.astype(str))
    triples[:, 2] = np.char.replace(triples[:, 2], "tail", "head")
    factory = TriplesFactory.from_labeled_triples(triples)
    epochs = trial.steps // 20
    with trial.loop():
        result = pipeline(
            training=factory,
            testing=factory,
            model="DistMult",
            model_kwargs={"embedding_dim": 128},
            training_kwargs={"num_epochs": epochs, "batch_size": 256, "use_tqdm": False},
            evaluation_kwargs={"batch_size": 256, "use_tqdm": False},
            negative_sampler_kwargs={"num_negs_per_pos": 32},
            random_seed=0,
            device="cpu",
        )
    trial.write(epochs * 20, result.model, result.losses)


if __name__ == "__main__":
    main()
