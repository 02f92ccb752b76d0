"""Problems of the machine: processors, memory and what else runs there."""
