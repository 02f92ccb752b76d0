"""Explains why a run is slow or failing: a window of its newest steps, detectors, and a verdict."""
