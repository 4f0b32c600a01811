"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastapi import HTTPException

from headway.errors import ConfigError, DataError, HeadwayError, InputError

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    421: "invalid_request_error",
    429: "rate_limit_error",
}
CODES = {
    401: "invalid_api_key",
    404: "not_found",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_media_type",
    429: "queue_full",
    503: "unavailable",
    504: "deadline_exceeded",
}
MOST_SHOWN = 2000  # characters of a message
ABSOLUTE = re.compile(r"(?<![\w.:/\\-])(?:/[^\s/:;,()<>'\"]+)+/(?=[^\s/])")  # the folders of an absolute path


class ApiError(HTTPException):
    """What a client did wrong, or what the server cannot do for it. `param` names the field."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code or CODES.get(status)

    def body(self) -> dict[str, Any]:
        message = str(self.detail)
        if self.param and self.param.partition("[")[0].partition(".")[0] not in message:
            message = f"{self.param}: {message}"
        return error_body(self.status_code, message, param=self.param, code=self.code)


class ClientGoneError(Exception):
    """The client has closed the connection: there is nobody to answer."""


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message[:MOST_SHOWN], "type": kind, "param": param, "code": code}}


def without_folders(message: str) -> str:
    """A message with the names of files, but not of the server's folders."""
    for root in (Path.cwd(), Path.home()):
        message = message.replace(f"{root}/", "/-/" if root.name else "/")
    return ABSOLUTE.sub("", message)


def as_api_error(error: Exception, *, param: str | None = None) -> ApiError:
    """What a client is told about an exception: errors of its input are 400, anything else is a fault of the server,
    whose details stay in the server's log."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, InputError | ConfigError | DataError):
        return ApiError(400, without_folders(str(error)), param=param)
    message = without_folders(str(error)) if isinstance(error, HeadwayError) else type(error).__name__
    return ApiError(500, f"the request failed: {message}", code="internal_error")
