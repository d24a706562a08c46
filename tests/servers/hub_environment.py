"""Where the Hugging Face clients of this process and its children look: a loopback Hub, a cache of the tests' own.

``huggingface_hub`` and ``datasets`` read these variables when they are imported, so this module is imported in front of
them. The port is bound here and listened on by the server later: until then every connection is refused at once.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile

__all__ = ["ENDPOINT", "SOCKET"]

SOCKET = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
SOCKET.bind(("127.0.0.1", 0))

ENDPOINT = f"http://127.0.0.1:{SOCKET.getsockname()[1]}"

_OWNER = os.getpid()
_HOME = tempfile.mkdtemp(prefix="streamfeed-hf-home-")

os.environ.update(
    HF_ENDPOINT=ENDPOINT,
    HF_HOME=_HOME,
    HF_HUB_DISABLE_XET="1",  # its transfer servers are not played here
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_UPDATE_DOWNLOAD_COUNTS="0",  # else `datasets` asks a server on the internet
)
for _name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_TOKEN_PATH"):
    os.environ.pop(_name, None)


@atexit.register
def _clean() -> None:
    if os.getpid() == _OWNER:
        shutil.rmtree(_HOME, ignore_errors=True)
