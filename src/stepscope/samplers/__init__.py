"""Samplers (plug-ins): one file for each thing that is polled."""
