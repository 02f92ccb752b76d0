"""Detectors, one file for each problem: when it is reported, its evidence, and advice."""
