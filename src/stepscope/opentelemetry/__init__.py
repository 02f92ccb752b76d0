"""OpenTelemetry metrics: their names, their points, and how they are sent."""
