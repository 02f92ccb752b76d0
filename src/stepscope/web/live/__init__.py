"""The live feed of a run."""
