"""What messages may show of a URL."""

from __future__ import annotations

import re

__all__ = ["redact"]

_USERINFO = re.compile(r"((?:^|::)[A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
_WEB_QUERY = re.compile(r"(?i)((?:^|::)https?://(?:(?!::)[^?#])*\?)((?:(?!::)[^#])*)")
_SECRET = re.compile(
    r"(?i)([?&](?:[^=&#]*(?:signature|credential|token|secret|password|policy|accesskey|access_key|api_?key)[^=&#]*|sig|key|auth)=)"
    r"[^&#]*"
)
_PLAIN_VALUE = re.compile(r"\d{0,12}|true|false|\*\*\*")
_PLAIN_NAMES = frozenset(
    (
        *("download", "file", "filename", "format", "name", "page", "part", "path", "raw", "shard", "split", "version"),
        *("expires", "key-pair-id", "se", "sv", "versionid", "x-amz-algorithm", "x-amz-date", "x-amz-expires"),
    )
)


def redact(url: str) -> str:
    """Return ``url`` without user, password, and what may sign it; a local path is unchanged.

    Every server has its own names for what signs a URL, so of a web address' query only the values are shown that are
    numbers or whose names are known to be harmless. Elsewhere a ``?`` may be part of a name, and only the values of
    names that say that they are secret are hidden.
    """
    if "://" not in url:
        return url
    shown = _WEB_QUERY.sub(lambda found: found[1] + _query(found[2]), _USERINFO.sub(r"\1***@", url))
    return _SECRET.sub(r"\1***", shown)


def _query(query: str) -> str:
    return "".join(_parameter(part) for part in re.split(r"([&;])", query))


def _parameter(part: str) -> str:
    name, equals, value = part.partition("=")
    if not equals:
        return part if part in {"&", ";"} or part.lower() in _PLAIN_NAMES or _PLAIN_VALUE.fullmatch(part) else "***"
    return part if name.lower() in _PLAIN_NAMES or _PLAIN_VALUE.fullmatch(value) else f"{name}=***"
