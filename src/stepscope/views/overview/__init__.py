"""The first page of a run: verdict, tiles, wall time, charts, events, how it ended."""
