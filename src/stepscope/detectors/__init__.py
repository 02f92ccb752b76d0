"""One file for each problem: signs, evidence, advice."""
