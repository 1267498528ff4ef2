"""What a store on a server does when it loses its connection, at the moments that matter."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
import sqlalchemy as sa

from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.unit.state_backends.patience import Patient
from txtopo.errors import AuthError, FencedError, StoreUnavailable, UnknownOutcomeError
from txtopo.plugins.stores import Puts
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver, whole_ledger

Server = MariaServer | PostgresServer
LIMIT_S = 60.0
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the proxy loses packets on Linux")


class LostConnectionSuite:
    """To be subclassed, with a fixture ``server`` that has a port, and ``url``: an empty store.

    Attributes:
        commit_marker: What the client sends with the commit, and with nothing else.
    """

    commit_marker: bytes

    @pytest.fixture
    def proxy(self, server: Server | RedisServer) -> Iterator[TcpProxy]:
        with TcpProxy(server.port) as proxy:
            yield proxy

    @pytest.fixture
    def distant(self, url: str, proxy: TcpProxy) -> StateDriver:
        """A state that holds txid 1, behind the proxy."""
        parsed = sa.make_url(url).set(port=proxy.port)
        state = open_state(parsed.render_as_string(hide_password=False), table="counts")
        store = StateDriver(state)
        store.puts(1, {"a": 1})
        return store

    @pytest.mark.row(36)
    def test_a_commit_that_landed_is_found_in_the_ledger(
        self, distant: StateDriver, proxy: TcpProxy
    ) -> None:
        proxy.lose(self.commit_marker, landed=True)

        assert distant.puts(2, {"a": 2}).txid == 2
        assert distant.contents() == {"a": 2}

    @pytest.mark.row(36)
    @pytest.mark.parametrize("landed", [True, False])
    @pytest.mark.rule("state_backends.redis.backend", "Rules", 3)
    def test_without_the_ledger_the_outcome_is_unknown(
        self, distant: StateDriver, proxy: TcpProxy, landed: bool
    ) -> None:
        proxy.lose(self.commit_marker, landed=landed)

        with pytest.raises(UnknownOutcomeError):
            distant.backend.commit(distant.attempt(2), Puts({("a",): (2,)}))
        assert distant.contents() == {"a": 2 if landed else 1}

    @pytest.mark.row(37)
    def test_a_commit_that_was_lost_is_tried_again(
        self, distant: StateDriver, proxy: TcpProxy
    ) -> None:
        proxy.lose(self.commit_marker, landed=False)

        with pytest.raises(StoreUnavailable, match="try again"):
            distant.puts(2, {"a": 2})
        assert distant.contents() == {"a": 1}
        assert distant.puts(2, {"a": 2}, attempt=1).txid == 2

    @pytest.mark.row(36, 37)
    @pytest.mark.parametrize("landed", [True, False])
    def test_a_group_whose_answer_was_lost_is_there_whole_or_not_at_all(
        self, distant: StateDriver, proxy: TcpProxy, landed: bool
    ) -> None:
        writes = Puts({("a",): (4,), ("new",): (4,)})
        proxy.lose(self.commit_marker, landed=landed)

        with pytest.raises(UnknownOutcomeError):
            distant.backend.commit(distant.attempt(4, first=2), writes)
        held = whole_ledger("topology", 1, 4, 1, 0, earlier=(0, 0))
        assert distant.held() == (held if landed else whole_ledger("topology", 1, 1, 1, 0))
        assert distant.contents() == ({"a": 4, "new": 4} if landed else {"a": 1})
        assert distant.puts(4, {"a": 5}, attempt=1, first=2).txid == 4
        assert distant.contents() == {"a": 5}

    @pytest.mark.row(28)
    def test_a_store_that_is_down_is_unavailable(
        self, distant: StateDriver, proxy: TcpProxy
    ) -> None:
        proxy.cut()

        with pytest.raises(StoreUnavailable):
            distant.puts(2, {"a": 2})
        with pytest.raises(StoreUnavailable), distant.backend.snapshot():
            pass
        proxy.repair()
        assert distant.puts(2, {"a": 2}).txid == 2


class ConnectionSuite(LostConnectionSuite, Patient):
    """The same for databases, and their locks; with a fixture ``state`` in ``url``.

    Attributes:
        lock_settings: By name in its module, what makes waits for locks short.
        silence_settings: The same of waits for a server that is gone.
    """

    lock_settings: ClassVar[Mapping[str, object]]
    silence_settings: ClassVar[Mapping[str, object]]

    @on_linux
    @pytest.mark.parametrize("acknowledged", [True, False])
    def test_a_server_that_is_gone_without_a_word_is_noticed(
        self,
        url: str,
        proxy: TcpProxy,
        monkeypatch: pytest.MonkeyPatch,
        acknowledged: bool,
    ) -> None:
        """Its machine has lost its power: nobody closes the connection. What was acknowledged
        before is not sent again, so only probes can tell that no answer will come."""
        for name, value in self.silence_settings.items():
            monkeypatch.setattr(name, value)
        parsed = sa.make_url(url).set(port=proxy.port)
        store = StateDriver(open_state(parsed.render_as_string(hide_password=False), table="c"))
        store.puts(1, {"a": 1})

        pool = ThreadPoolExecutor(1)  # which ends with the proxy, also if it hangs
        if acknowledged:
            proxy.delay(self.commit_marker)
            waits = pool.submit(store.puts, 2, {"a": 2})
            assert proxy.arrived.wait(LIMIT_S)
            proxy.half_open()
        else:
            proxy.half_open()
            waits = pool.submit(store.puts, 2, {"a": 2})
        proxy.repair()

        with pytest.raises(StoreUnavailable):
            waits.result(LIMIT_S)
        assert store.puts(2, {"a": 2}, attempt=1).txid == 2

    @on_linux
    def test_a_server_that_takes_connections_and_answers_nothing_is_noticed(
        self, url: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in self.silence_settings.items():
            monkeypatch.setattr(name, value)
        parsed = sa.make_url(url).set(port=proxy.port)
        state = open_state(parsed.render_as_string(hide_password=False), table="c")
        proxy.half_open("mute")

        waits = ThreadPoolExecutor(1).submit(StateDriver, state)
        with pytest.raises(StoreUnavailable):
            waits.result(LIMIT_S)

    @pytest.mark.row(53)
    @pytest.mark.parametrize("marker", [b"FOR UPDATE", b"UPDATE txtopo_ledger"])
    def test_a_write_that_is_late_on_its_way_is_refused_after_a_claim(
        self, distant: StateDriver, state: State, proxy: TcpProxy, marker: bytes
    ) -> None:
        """Its writer had the right to it when it was sent."""
        if marker == b"FOR UPDATE":  # said by who has committed nothing since its claim
            assert distant.backend.claimant is not None
            distant.backend.claim(distant.backend.claimant)
        proxy.delay(marker)

        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(distant.puts, 2, {"a": 2, "b": 2})
            assert proxy.arrived.wait(LIMIT_S)
            successor = StateDriver(state, epoch=2)
            successor.puts(2, {"a": 20})
            proxy.release()
            with pytest.raises(FencedError):
                late.result(LIMIT_S)

        assert successor.contents() == {"a": 20}

    @pytest.mark.row(53)
    def test_a_commit_that_is_late_on_its_way_comes_before_the_claim_or_not_at_all(
        self, distant: StateDriver, state: State, proxy: TcpProxy
    ) -> None:
        """Its transaction holds the ledger, so a claim waits for it."""
        proxy.delay(self.commit_marker)

        with ThreadPoolExecutor(2) as pool:
            late = pool.submit(distant.puts, 2, {"a": 2})
            assert proxy.arrived.wait(LIMIT_S)
            claiming = pool.submit(StateDriver, state, epoch=2)
            proxy.release()
            assert late.result(LIMIT_S).txid == 2
            successor = claiming.result(LIMIT_S)

        assert successor.ledger.txid == 2
        assert successor.puts(2, {"a": 20}).epoch == 2
        assert successor.contents() == {"a": 20}

    @pytest.mark.row(28)
    def test_a_reading_that_is_over_when_its_connection_breaks_is_whole(
        self, distant: StateDriver, proxy: TcpProxy
    ) -> None:
        with distant.state.reader() as reader:
            assert dict(reader.items()) == {"a": 1}
            proxy.cut()

        with pytest.raises(StoreUnavailable), distant.state.reader():
            pass

    @pytest.mark.row(30)
    def test_a_lock_that_stays_is_an_unavailable_store(
        self, state: State, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in self.lock_settings.items():
            monkeypatch.setattr(name, value)
        store = StateDriver(state)
        with sa.create_engine(url).connect() as zombie:
            zombie.execute(sa.text("SELECT 1 FROM txtopo_ledger FOR UPDATE"))

            with pytest.raises(StoreUnavailable, match="lock"):
                store.puts(1, {"a": 1})
        assert store.puts(1, {"a": 1}).txid == 1

    @pytest.mark.row(2)
    def test_a_wrong_password_is_refused_without_showing_it(self, server: Server) -> None:
        server.create_database("closed")
        state = open_state(server.url_of("closed", "not-the-word"), table="counts")

        with pytest.raises(AuthError) as caught:
            state.open().create()
        assert "not-the-word" not in f"{caught.value} {state!r}"
