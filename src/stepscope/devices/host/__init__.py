"""The host: processors, memory, disks, networks, control groups, energy counters."""
