"""Time spent waiting for other ranks: in gradient reduction, and in the exchanges of sharded models."""
