"""A schema registry on a loopback port that speaks as much of Confluent's REST API as clients call.

It stands in for Confluent's own, which no package repository of the tests has. What it knows is in
a file, so it is the same after it was killed. ``python -m tests.harness.servers.schema_registry``
with port and folder is its process.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.harness.servers.private import ServerProcess, free_port

_ROOT = Path(__file__).parents[3]
Answer = tuple[int, object]


class SchemaRegistry(ServerProcess):
    """A registry with a file of its own; a context manager that starts and stops it.

    Attributes:
        url: ``http://127.0.0.1:port``; the same after :meth:`start` again.
    """

    user_info = "reader:secret-of-the-registry"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-registry-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the registry and wait until it answers."""
        module = "tests.harness.servers.schema_registry"
        command = [sys.executable, "-m", module, str(self.port), str(self.folder)]
        self._process = self._open(command, cwd=_ROOT)
        self._wait_until_it_answers(self._process, self._answers)

    def behave(self, how: str = "") -> None:
        """Answer as a registry (""), with "500", "html", "html-404", "json"; ask a "password"."""
        (self.folder / "behaviour").write_text(how)

    def register(self, subject: str, schema: object, **more: Any) -> int:
        """Register a schema and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer = self._ask(f"/subjects/{subject}/versions", {"schema": text, **more})
        return int(answer["id"])

    def subjects(self) -> dict[str, list[Any]]:
        """Return the schemas of each subject, oldest first."""
        found: dict[str, list[Any]] = {}
        for each in _read(self.folder):
            found.setdefault(each["subject"], []).append(each)
        return found

    def asked(self) -> list[str]:
        """Return the requests so far, as "GET /path?query"."""
        file = self.folder / "requests"
        return file.read_text().splitlines() if file.exists() else []

    def forget_asked(self) -> None:
        """Begin the list of requests again."""
        (self.folder / "requests").write_text("")

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/", timeout=5).close()
        except OSError:
            return False
        return True

    def _ask(self, path: str, body: object) -> Any:
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


def _read(folder: Path) -> list[dict[str, Any]]:
    """Return what is registered, oldest first."""
    file = folder / "schemas"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class _Handler(BaseHTTPRequestHandler):
    folder: Path

    def do_GET(self) -> None:
        self._respond({})

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        self._respond(json.loads(self.rfile.read(size)))

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _respond(self, body: Mapping[str, Any]) -> None:
        file = self.folder / "behaviour"
        behaviour = file.read_text() if file.exists() else ""
        url = urlsplit(self.path)
        if url.path == "/":
            self._send(200, {})
            return
        with (self.folder / "requests").open("a") as requests:
            requests.write(f"{self.command} {self.path}\n")
        if behaviour.startswith("html"):
            self._send(404 if "404" in behaviour else 200, "<html>Welcome</html>")
        elif behaviour == "500":
            self._send(500, {"error_code": 50001, "message": "Error in the backend data store"})
        elif behaviour == "json":
            self._send(200, {"status": "up"})
        elif behaviour == "password" and not self._knows_the_password():
            self._send(401, {"error_code": 401, "message": "Unauthorized"})
        else:
            path = [unquote(part) for part in url.path.strip("/").split("/")]
            self._send(*self._answer(path, body, parse_qs(url.query)))

    def _knows_the_password(self) -> bool:
        expected = base64.b64encode(SchemaRegistry.user_info.encode()).decode()
        return self.headers.get("Authorization") == f"Basic {expected}"

    def _send(self, status: int, answer: object) -> None:
        html = isinstance(answer, str)
        data = str(answer).encode() if html else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if html else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, path: list[str], body: Mapping[str, Any], query: Mapping[str, Any]) -> Answer:
        match self.command, path:
            case "GET", ["schemas", "ids", id]:
                found = [each for each in _read(self.folder) if each["id"] == int(id)]
                if not found:
                    return 404, {"error_code": 40403, "message": f"Schema {id} not found"}
                return 200, _shown(found[0])
            case "GET", ["schemas", "guids", guid]:
                found = [each for each in _read(self.folder) if each["guid"] == guid]
                if not found:
                    return 404, {"error_code": 40403, "message": f"Schema {guid} not found"}
                return 200, {**_shown(found[0]), "id": found[0]["id"], "guid": guid}
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "POST", ["subjects", subject]:
                for each in self._versions(subject):
                    if _same(each, body):
                        return 200, each
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "GET", ["subjects", subject, "versions", version]:
                versions = self._versions(subject)
                if not versions:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                number = len(versions) if version in ("latest", "-1") else int(version)
                if not 0 < number <= len(versions):
                    return 404, {"error_code": 40402, "message": f"Version {version} not found."}
                return 200, versions[number - 1]
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _versions(self, subject: str) -> list[dict[str, Any]]:
        return [each for each in _read(self.folder) if each["subject"] == subject]

    def _register(self, subject: str, body: Mapping[str, Any]) -> Answer:
        known = _read(self.folder)
        versions = [each for each in known if each["subject"] == subject]
        for each in versions:
            if _same(each, body):
                return 200, {"id": each["id"]}
        kind = body.get("schemaType", "AVRO")
        if versions and (why := _incompatible(kind, versions[-1], body)):
            said = "Schema being registered is incompatible with an earlier schema for subject"
            return 409, {"error_code": 409, "message": f'{said} "{subject}", details: [{why}]'}
        ids = [each["id"] for each in known if _same(each, body)]
        new = {
            "subject": subject,
            "id": ids[0] if ids else max((each["id"] for each in known), default=0) + 1,
            "guid": str(uuid.uuid5(uuid.NAMESPACE_URL, body["schema"])),
            "version": len(versions) + 1,
            "schemaType": kind,
            "schema": body["schema"],
            "references": body.get("references") or [],
        }
        with (self.folder / "schemas").open("a") as schemas:
            schemas.write(json.dumps(new) + "\n")
            schemas.flush()
            os.fsync(schemas.fileno())
        return 200, {"id": new["id"]}


def _shown(known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: known[name] for name in ("schema", "schemaType", "references")}


def _same(known: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    return bool(
        known["schema"] == body["schema"]
        and known["schemaType"] == body.get("schemaType", "AVRO")
        and known["references"] == (body.get("references") or [])
    )


def _incompatible(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return why a reader of the new schema cannot read the old one's data (BACKWARD)."""
    if kind != old["schemaType"]:
        return f"{{errorType:'TYPE_MISMATCH', description:'{old['schemaType']} to {kind}'}}"
    if kind != "AVRO":
        return None
    before, after = (json.loads(each["schema"]) for each in (old, new))
    known = {each["name"] for each in before.get("fields", ())}
    for each in after.get("fields", ()):
        if each["name"] not in known and "default" not in each and not each.get("aliases"):
            why = "READER_FIELD_MISSING_DEFAULT_VALUE"
            return f"{{errorType:'{why}', description:'The field '{each['name']}' at path …'}}"
    return None


if __name__ == "__main__":
    _Handler.folder = Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
