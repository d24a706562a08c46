"""URLs as messages may show them."""

from __future__ import annotations

import re

__all__ = ["redact"]

_USERINFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
_SECRET = re.compile(
    r"(?i)([?&](?:[^=&#]*(?:signature|credential|token|secret|password|accesskey|access_key|api_?key)[^=&#]*|sig|key|auth)=)[^&#]*"
)


def redact(url: str) -> str:
    """Return ``url`` without user, password and the values of signing query parameters; a local path is unchanged."""
    if "://" not in url:
        return url
    return _SECRET.sub(r"\1***", _USERINFO.sub(r"\1***@", url))
