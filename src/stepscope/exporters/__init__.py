"""Exporters (plug-ins), one file for each format or system."""
