"""The data types: run, segment, record, series; standard library only."""
