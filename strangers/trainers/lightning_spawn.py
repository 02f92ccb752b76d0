"""Trains a classifier with Lightning on two processes that multiprocessing spawns."""

import lightning_ddp

if __name__ == "__main__":
    lightning_ddp.main("ddp_spawn")
