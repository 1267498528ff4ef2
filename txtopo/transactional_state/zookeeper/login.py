"""Login: which failure of a SASL login is the server's word, and which is only a lost connection.

A login takes several messages on a connection that is open already. kazoo 2.11 takes whatever goes
wrong in between for a refusal, and gives up for good: also a server that is stopped, or loses its
quorum, at that moment. ZooKeeper 3.9 says so when it refuses; old servers hang up instead. So:

* What the server says is final, also after a login that went well: somebody changed the password.
* A connection that is lost is tried again. Before the first login went well, only
  :data:`LOSSES_MAX` times in a row: then it is the word of an older server.
* What the client's own library cannot do (a Kerberos ticket that nobody issues) is final before
  the first login went well, and tried again afterwards.

A login that is tried again keeps its session, and a leader its leadership while the session lives.
"""

from __future__ import annotations

from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    SASLException,
    SessionClosedRequireSaslError,
)

LOSSES_MAX = 3
"""So often in a row no server happens to stop just then. kazoo pauses after it was at all hosts:
an ensemble of three that stops as a whole at that very moment is taken for one that refuses."""


def judge_logins(client: KazooClient) -> None:
    """Let *client* try a login again, or give up, by the rules of this file."""
    connection = client._connection
    connection._authenticate_with_sasl = _Logins(connection._authenticate_with_sasl).log_in


class _Logins:
    def __init__(self, authenticate: Callable[[str, float], None]) -> None:
        self._authenticate = authenticate
        self._went_well = False
        self._lost = 0

    def log_in(self, host: str, timeout_s: float) -> None:
        """Do what kazoo does; fail by what makes it try again, or by what makes it give up."""
        try:
            self._authenticate(host, timeout_s)
        except SessionClosedRequireSaslError as error:
            raise AuthFailedError("the server requires a login by sasl") from error
        except (AuthFailedError, SASLException, ConnectionDropped) as error:
            if not self._may_try_again(error):
                raise AuthFailedError(str(error)) from error
            raise ConnectionDropped(f"the login was not finished: {error}") from error
        self._went_well, self._lost = True, 0

    def _may_try_again(self, error: Exception) -> bool:
        # kazoo raises what the server said as it is, and all else from what went wrong.
        if isinstance(error, AuthFailedError) and error.__cause__ is None:
            return False
        if self._went_well:
            return True
        self._lost += 1
        dropped = ConnectionDropped in (type(error), type(error.__cause__))
        return dropped and self._lost < LOSSES_MAX
