"""Sends points over OTLP/HTTP with OpenTelemetry's own exporter, one attempt at a time."""

from __future__ import annotations

import importlib.util
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stepscope.errors import MissingExtra
from stepscope.exporters.base import Unreachable
from stepscope.opentelemetry.conventions import SCHEMA_URL, SERVICE
from stepscope.opentelemetry.series import DurationSeries
from stepscope.prometheus.options import BUCKETS
from stepscope.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics

    from stepscope.opentelemetry.conventions import Instrument
    from stepscope.opentelemetry.series import Series

log = logging.getLogger("stepscope.agent")

MAX_WHOLE = 2.0**63
"""Numbers from here on do not fit into whole ones, and are sent as floating-point numbers."""


class NotAccepted(Unreachable):
    """The endpoint did not take the points. Later requests have them too, so these fail likewise."""


def check_library() -> None:
    """Raises MissingExtra where OpenTelemetry is not installed; imports as little of it as possible."""
    needed = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    try:
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
    except ModuleNotFoundError:
        missing = [*needed]
    if missing:
        raise MissingExtra("otel", needed_for="The exporter opentelemetry")


class Sender:
    """Sends points to one endpoint. No meter provider, reader or thread of OpenTelemetry is started."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        """Without an endpoint or headers, those of the variables OTEL_EXPORTER_OTLP_* are used."""
        self._endpoint, self._headers = endpoint, headers
        self._exporter: Any = None
        self._session: Any = None

    def send(self, runs: Mapping[tuple[str, str], tuple[str, Sequence[Series]]]) -> None:
        """Sends the points of runs by run id and host, each with the run's name; raises NotAccepted."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        if self._exporter is None:
            self._open()
        self._session.failure = ""
        result = self._exporter.export(_metrics_data(runs))
        if self._session.failure:
            raise NotAccepted(self._session.failure)
        if result is not MetricExportResult.SUCCESS:
            raise NotAccepted("OpenTelemetry could not send the metrics; agent.log has its message.")

    def close(self) -> None:
        """Closes the connection."""
        if self._exporter is not None:
            self._exporter.shutdown()

    def _open(self) -> None:
        # Not in the constructor, which the agent's own thread calls: the libraries take half a second.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._session = _session()
        self._exporter = OTLPMetricExporter(
            endpoint=self._endpoint or None, headers=dict(self._headers) or None, session=self._session
        )


def _session() -> Any:
    import requests

    class SingleAttempts(requests.Session):
        """Stores a failure, and reports success to OpenTelemetry, whose own retries could take minutes."""

        failure = ""

        def request(self, method: Any, url: Any, *args: Any, **options: Any) -> Any:
            target = _target(str(url))
            try:
                # Not to another host, which would get the headers, and they may have a token.
                response = super().request(method, url, *args, **{**options, "allow_redirects": False})
            except requests.Timeout:
                self.failure = f"{target} did not answer within {options.get('timeout'):.3g} s."
            except (
                requests.exceptions.MissingSchema,
                requests.exceptions.InvalidSchema,
                requests.exceptions.InvalidURL,
            ):
                self.failure = "The endpoint is not a valid address; it must be like http://localhost:4318."
            except requests.RequestException as error:
                self.failure = f"{target} cannot be reached: {_reason(error)}."
            else:
                if 200 <= response.status_code < 300:
                    _report_rejected(target, response.content)
                    return response
                self.failure = f"{target} answered {response.status_code} {response.reason}.".replace(
                    " .", "."
                )
            accepted = requests.Response()
            accepted.status_code = 200
            return accepted

    return SingleAttempts()


def _target(url: str) -> str:
    """Scheme and host; user name and query may be secrets and are not shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _reason(error: BaseException) -> str:
    """What the operating system said, without the address, which may have a secret."""
    causes: list[object] = [error]
    for cause in causes:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        if isinstance(cause, BaseException) and len(causes) < 20:
            nested = (*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__)
            causes += [other for other in nested if isinstance(other, BaseException)]
    return type(error).__name__


def _report_rejected(target: str, content: bytes) -> None:
    """Logs points that the endpoint has refused while it accepted the others; they must not be sent again."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

    try:
        rejected = ExportMetricsServiceResponse.FromString(content).partial_success
    except DecodeError:
        return  # an answer in another format; the status says that the points were accepted
    if rejected.rejected_data_points:
        text = rejected.error_message[:200]
        log.warning("%s rejected %d OpenTelemetry points: %s", target, rejected.rejected_data_points, text)


def _metrics_data(runs: Mapping[tuple[str, str], tuple[str, Sequence[Series]]]) -> MetricsData:
    from opentelemetry.sdk.metrics.export import MetricsData

    return MetricsData(
        [_resource_metrics(run_id, host, name, series) for (run_id, host), (name, series) in runs.items()]
    )


def _resource_metrics(run_id: str, host: str, name: str, series: Sequence[Series]) -> ResourceMetrics:
    from opentelemetry.sdk.metrics.export import ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    resource = Resource(
        {"service.name": SERVICE, "service.instance.id": run_id, "host.name": host, "ml.run.name": name}
    )
    by_instrument: dict[Instrument, list[Series]] = {}
    for member in series:
        by_instrument.setdefault(member.instrument, []).append(member)
    metrics = [_metric(instrument, members) for instrument, members in by_instrument.items()]
    scope = InstrumentationScope(SERVICE, __version__, SCHEMA_URL)
    return ResourceMetrics(resource, [ScopeMetrics(scope, metrics, SCHEMA_URL)], schema_url=SCHEMA_URL)


def _metric(instrument: Instrument, series: Iterable[Series]) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, Sum

    points = [_point(member) for member in series]
    data: Any
    if instrument.kind == "gauge":
        data = Gauge(points)
    elif instrument.kind == "histogram":
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    else:
        data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=instrument.kind == "counter")
    return Metric(instrument.name, instrument.description, instrument.unit, data)


def _point(series: Series) -> Any:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

    if isinstance(series, DurationSeries):
        counts = series.counts.tolist()
        return HistogramDataPoint(
            series.attributes,
            series.start_ns,
            series.time_ns,
            count=sum(counts),
            sum=series.value,
            bucket_counts=counts,
            explicit_bounds=BUCKETS,
            min=series.minimum,
            max=series.maximum,
        )
    # The conventions have whole numbers for bytes and for what is counted.
    is_whole = series.instrument.unit == "By" or series.instrument.unit.startswith("{")
    value = round(series.value) if is_whole and abs(series.value) < MAX_WHOLE else series.value
    return NumberDataPoint(series.attributes, series.start_ns, series.time_ns, value)
