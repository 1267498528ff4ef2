"""A PostgreSQL cluster that takes connections with TLS only, for the tests."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlencode

from tests.harness.servers.certificates import Authority
from tests.harness.servers.postgresql import PostgresServer


class TlsPostgresServer(PostgresServer):
    """A cluster with a certificate for 127.0.0.1; its URLs say ``sslmode=verify-full``.

    Attributes:
        authority: Who signed the certificate.
    """

    def __init__(self) -> None:
        super().__init__({"ssl": "on"})
        self.authority = Authority(self.folder)
        own = self.authority.sign("server")
        data = self.folder / "data"
        for file, name in ((own.certificate, "server.crt"), (own.key, "server.key")):
            target = data / name
            target.write_bytes(file.read_bytes())
            target.chmod(0o600)
            if self._account:
                os.chown(target, self._account.pw_uid, self._account.pw_gid)
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 md5\n")

    def url_of(self, database: str, password: str | None = None) -> str:
        """Return the URL of a database of this server."""
        settings = {"sslmode": "verify-full", "sslrootcert": str(self.authority.file)}
        return f"{super().url_of(database, password)}?{urlencode(settings)}"

    def url_with(self, **settings: str) -> str:
        """Return the URL of the database ``postgres`` with other settings."""
        plain, _, query = self.url.partition("?")
        return f"{plain}?{urlencode(dict(parse_qsl(query)) | settings)}"
