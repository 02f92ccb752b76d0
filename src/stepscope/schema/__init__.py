"""The nouns: run, segment, record, series; standard library only."""
