"""Logging: structlog renders everything, also what libraries log through the standard library."""

import logging
import sys
from functools import cache
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog
from temporalio import activity, workflow
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from worker.settings import Settings


def _without_core_object(
    _logger: object, _method: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    """The SDK attaches what it has put into the message already."""
    event.pop("temporal_log", None)
    return event


_SHARED: list[structlog.types.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(allow=None),
    _without_core_object,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]

_MOST_BYTES = 10_000_000

#: Each of these logs every request or connection at INFO.
_CHATTY = ("httpx", "httpcore", "asyncssh")


def set_up_logging(settings: Settings, to: Path | None = None) -> None:
    """Send all logs to standard error, or to the file ``to`` where a live view has the terminal."""
    handler: logging.Handler
    if to is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(to, maxBytes=_MOST_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(_formatter(settings, colours=to is None and sys.stderr.isatty()))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    catch_sdk_logs("WARN")
    # Which workflow or activity spoke is a field of its own, and need not stand in the text too.
    workflow.logger.workflow_info_on_message = False
    activity.logger.activity_info_on_message = False
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


@cache
def catch_sdk_logs(level: str) -> None:
    """Log what the SDK's core says from a level up like everything else.

    By itself the core prints it on standard output, in the middle of a live view or of JSON. Of use
    only before the first client is made, so only the first call counts.
    """
    logging_config = LoggingConfig(
        filter=TelemetryFilter(core_level=level, other_level="ERROR"),
        forwarding=LogForwardingConfig(
            logger=logging.getLogger("temporalio.core"),
            append_target_to_name=False,
        ),
    )
    runtime = Runtime(telemetry=TelemetryConfig(logging=logging_config))
    Runtime.set_default(runtime, error_if_already_set=False)


def _formatter(settings: Settings, *, colours: bool) -> logging.Formatter:
    """Tracebacks are plain. structlog's own show local variables, and so secrets; and Rich, which
    draws them, can't be imported where a workflow logs.
    """
    if settings.log_format == "json":
        last: list[structlog.types.Processor] = [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(),
        ]
    else:
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
