"""A private object store on a free loopback port: Moto's server of S3."""

from __future__ import annotations

import re
import tempfile
import uuid
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlencode

from tests.harness.servers.private import ServerProcess, free_port, installed

_REQUIREMENTS = Path(__file__).parents[3] / "docker" / "object-store" / "requirements.txt"
_BUCKET = "states"
# For a conditional put, Moto looks for the object and then makes it, and does so in a thread for
# each request: now and then two puts at once both succeed. S3 lets one of them, so requests are
# answered one after the other here.
_SERVER = """
import sys, threading
from moto.moto_server import werkzeug_app as moto
from werkzeug.serving import run_simple

app, lock = moto.DomainDispatcherApplication(moto.create_backend_app), threading.Lock()

def one_by_one(environ, start_response):
    with lock:
        return app(environ, start_response)

handler = moto.MotoRequestHandler
run_simple("127.0.0.1", int(sys.argv[1]), one_by_one, threaded=True, request_handler=handler)
"""


def find_python() -> Path | None:
    """Return the Python that has the server, or None if nobody has installed it."""
    found = re.search(r"^moto==(.*)$", _REQUIREMENTS.read_text(), re.MULTILINE)
    assert found is not None
    folder = installed(f"object-store-{found.group(1)}")
    return folder / "bin" / "python" if (folder / ".ready").exists() else None


class ObjectStore(ServerProcess):
    """A server that keeps objects in its memory; a context manager that starts and stops it.

    Puts are conditional (``If-None-Match``), which Delta's commits rely on. Anybody may come in.

    Attributes:
        port: Its port on 127.0.0.1.
        folder: Where its log is.
    """

    def __init__(self) -> None:
        found = find_python()
        if found is None:
            raise FileNotFoundError("no object store found; run make object-store")
        self._python = found
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-object-store-"))
        self.port = free_port()

    def url(self) -> str:
        """Return the URL of a folder of its own."""
        options = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "anybody",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_REGION": "us-east-1",
        }
        return f"s3://{_BUCKET}/{uuid.uuid4().hex}?{urlencode(options)}"

    def start(self) -> None:
        """Start the server, wait until it answers and make a bucket."""
        self._process = self._open([self._python, "-c", _SERVER, str(self.port)], cwd=self.folder)
        self._wait_until_it_answers(self._process, lambda: self._put_bucket() == 200)

    def _put_bucket(self) -> int | None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10.0)
        try:
            connection.request("PUT", f"/{_BUCKET}")
            return connection.getresponse().status
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()
