"""Grafana dashboards of what Prometheus gets, and the files that set them up."""
