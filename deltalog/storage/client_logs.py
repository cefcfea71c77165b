"""Keeps credentials out of the logs of client libraries."""

from __future__ import annotations

import logging
import re


class _HeaderFilter(logging.Filter):
    """Redacts session tokens, and the credentials in responses, in the log records of client libraries."""

    _SECRETS = (
        re.compile(r"""(x-amz-security-token['"]?\s*[:=,]\s*(?:b?['"])?)[^'"\s,)}]+""", re.IGNORECASE),
        re.compile(r"((?:SecretAccessKey|SessionToken|Token|secretAccessKey|sessionToken)>)[^<]+"),
        re.compile(
            r"""((?:SecretAccessKey|SessionToken|Token|secretAccessKey|sessionToken)\\?['"]\s*:\s*\\?b?['"])[^'"\\]+"""
        ),
    )

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = redacted = record.getMessage()
        except Exception:
            return True  # the log handler reports the formatting error
        for secret in self._SECRETS:
            redacted = secret.sub(r"\1***", redacted)
        if redacted != text:
            record.msg, record.args = redacted, ()
        return True


_FILTER = _HeaderFilter()
# At level DEBUG, these loggers write requests and responses, including their headers.
_LOGGERS = ("botocore.auth", "botocore.endpoint", "botocore.parsers", "botocore.httpsession", "botocore.hooks")
_ASYNC_LOGGERS = tuple(name.replace("botocore", "aiobotocore") for name in _LOGGERS)


def keep_out_of_client_logs() -> None:
    """Redact session tokens in the logs of AWS clients at every level. Call this function before using an AWS
    client."""
    for name in (*_LOGGERS, *_ASYNC_LOGGERS):
        logging.getLogger(name).addFilter(_FILTER)  # adding it again has no effect
