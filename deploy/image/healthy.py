"""The image's health check: does the service in this container say it is well?

It ends with 0 if so, else with 1 and the reason. The port is mirror's own, in the same
container: what it shows for a certificate need not be for 127.0.0.1.
"""

from __future__ import annotations

import os
import ssl
import sys
from urllib.error import HTTPError
from urllib.request import urlopen

port = os.environ.get("MIRROR_SERVICE__http_port", "8083")
reasons = []
for scheme in ("http", "https"):
    address = f"{scheme}://127.0.0.1:{port}/healthz"
    context = ssl._create_unverified_context() if scheme == "https" else None  # noqa: S323, SLF001
    try:
        with urlopen(address, timeout=4, context=context):  # noqa: S310
            sys.exit(0)
    except HTTPError as error:
        # It answers that it is unhealthy.
        sys.exit(f"{address}: {error.read().decode(errors='replace')}")
    except OSError as error:
        reasons.append(f"{address}: {error}")
sys.exit("\n".join(reasons))
