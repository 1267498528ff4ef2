"""Backing maps that do not keep their interface, or hold what nobody here wrote: named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.state.backing_maps import ComparingMap, DictMap, MortalMap
from txtopo import Fields, TransactionAttempt
from txtopo.errors import (
    ForeignStateError,
    PlugInError,
    SchemaDrift,
    SchemaVersionError,
    StaleBatchError,
    StoreUnavailable,
    TopologyError,
    TxtopoError,
    UnknownOutcomeError,
)
from txtopo.plugins.stores import (
    BackingMap,
    OpaqueMap,
    Puts,
    StateBackend,
    StateTable,
    backing_map_factory,
)
from txtopo.state import open_state, register_backend
from txtopo.state.commit import commit_resolved
from txtopo.testing.conformance.driver import claim_of, whole_ledger

TABLE = StateTable("counts", "opaque", Fields("key string"), Fields("value long"))
HEAD = '["counts","head"]'


def attempt(txid: int, number: int = 0) -> TransactionAttempt:
    return TransactionAttempt(txid, number, 1)


def puts(**values: int) -> Puts:
    return Puts({(key,): (value,) for key, value in values.items()})


def claimed(backing_map: BackingMap) -> OpaqueMap:
    state = OpaqueMap(backing_map, TABLE)
    state.claim(claim_of("topology", 1))
    return state


def test_an_attempt_of_another_ensemble_that_died_half_way_is_taken_back() -> None:
    """Its number is no older and no newer than one's own."""
    texts: dict[str, str] = {}
    state = OpaqueMap(mortal := MortalMap(texts), TABLE)
    state.claim(claim_of("topology", 3, ensemble="first"))
    mortal.keys_left = 3
    with pytest.raises((UnknownOutcomeError, StoreUnavailable)):
        state.commit(TransactionAttempt(1, 0, 3), puts(a=9, b=9))

    again = OpaqueMap(DictMap(texts), TABLE)
    again.claim(claim_of("topology", 1, ensemble="second"))
    again.commit(attempt(1), puts(a=1))
    assert contents(again) == {"a": 1}


class Answers(DictMap):
    """Answers whatever it is told."""

    def __init__(self, answer: Any) -> None:
        super().__init__({})
        self.answer = answer

    def multi_get(self, keys: Sequence[str]) -> Any:
        return self.answer


@pytest.mark.parametrize("answer", [None, (None,), [], [None, None], [1], [b"{}"], {}])
def test_an_answer_that_is_no_list_of_texts_is_named(answer: object) -> None:
    with pytest.raises(PlugInError, match=r"multi_get of Answers returned .*one string per key"):
        claimed(Answers(answer))


def test_a_comparison_that_does_not_say_what_it_did_is_named() -> None:
    class Silent(ComparingMap):
        def compare_and_put(self, key: str, expected: str | None, value: str) -> Any:
            super().compare_and_put(key, expected, value)

    with pytest.raises(PlugInError, match="compare_and_put of Silent returned None"):
        claimed(Silent({}))


class OneMethod(BackingMap):
    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return [None for _ in keys]


def one_method(url: str) -> BackingMap:
    return OneMethod()  # type: ignore[abstract]


class Alike:
    """Has the methods, but is not derived."""

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return [None for _ in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None: ...


@pytest.mark.parametrize(
    ("open_map", "words"),
    [
        (one_method, "abstract class OneMethod .*multi_put"),
        (lambda url: Alike(), "got Alike; expected an object derived from BackingMap, with"),
        (lambda url: None, "opened no backing map; got NoneType"),
        (lambda: None, r"got TypeError: .*takes 0 positional arguments"),
    ],
    ids=["lacks a method", "is something else", "is nothing", "takes no URL"],
)
def test_a_plug_in_that_opens_no_map_is_named(open_map: Callable[..., Any], words: str) -> None:
    register_backend("no-map", backing_map_factory(open_map))

    with pytest.raises(TopologyError, match=words):
        open_state("no-map://x", table="counts").open()


def test_what_opens_a_map_must_be_callable() -> None:
    with pytest.raises(TopologyError, match="needs a function that opens a map; got 'redis'"):
        backing_map_factory("redis")  # type: ignore[arg-type]


def test_each_kind_has_its_map_and_other_processes_may_not_see_it() -> None:
    register_backend(
        "ours", backing_map_factory(lambda url: DictMap({}), shared_by_processes=False)
    )

    kinds = [
        type(open_state("ours:", kind, "counts").open()).__name__
        for kind in ("opaque", "transactional")
    ]
    assert kinds == ["OpaqueMap", "TransactionalMap"]
    assert not open_state("ours:").shared_by_processes


@pytest.mark.parametrize("error", [ConnectionError, TimeoutError])
def test_what_may_pass_is_tried_again(error: type[Exception]) -> None:
    class Away(DictMap):
        def multi_get(self, keys: Sequence[str]) -> list[str | None]:
            raise error("nobody there")

    with pytest.raises(StoreUnavailable, match="nobody there"):
        OpaqueMap(Away({}), TABLE).create()


def test_what_a_plug_in_does_wrong_ends_the_run() -> None:
    class Wrong(DictMap):
        def multi_get(self, keys: Sequence[str]) -> list[str | None]:
            return [self.texts[key] for key in keys]

    with pytest.raises(KeyError):
        OpaqueMap(Wrong({}), TABLE).create()


def test_only_the_last_write_leaves_the_outcome_open() -> None:
    """The lists, the head, the row, the head: four keys, and two for the list of new keys."""
    outcomes: dict[int, type[Exception] | None] = {}
    for keys_left in range(7):
        state = claimed(mortal := MortalMap({}))
        mortal.keys_left = keys_left
        try:
            state.commit(attempt(1), puts(a=1))
            outcomes[keys_left] = None
        except (StoreUnavailable, UnknownOutcomeError) as error:
            outcomes[keys_left] = type(error)

    away = dict.fromkeys(range(4), StoreUnavailable)
    assert outcomes == {**away, 4: UnknownOutcomeError, 5: None, 6: None}


def test_a_lost_answer_is_found_in_the_ledger() -> None:
    class Deaf(DictMap):
        def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
            super().multi_put(keys, values)
            if '"txid":1' in values[0] and list(keys) == [HEAD]:
                raise ConnectionResetError("lost")

    state = claimed(Deaf({}))

    assert commit_resolved(state, attempt(1), puts(a=1)) == whole_ledger("topology", 1, 1, 1, 0)


@pytest.mark.rule("txtopo.state.map_backend", "Rules", 5)
def test_a_write_that_is_still_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txtopo.state.map_backend._WAIT_S", 0.01)
    state = OpaqueMap(DictMap({}), TABLE)

    class Slow(DictMap):
        def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
            with pytest.raises(StoreUnavailable, match="still under way"):
                state.commit(attempt(1, 1), puts(a=2))
            super().multi_put(keys, values)

    state._map = Slow({})
    state.claim(claim_of("topology", 1))
    assert state.commit(attempt(1), puts(a=1)).attempt == 0


def test_a_row_of_a_later_txid_is_the_work_of_somebody_else() -> None:
    texts: dict[str, str] = {}
    state = claimed(DictMap(texts))
    state.commit(attempt(1), puts(a=1))
    texts['["counts","row","[\\"a\\"]"]'] = '[9,0,"",[7,[1],null,null]]'

    with pytest.raises(StaleBatchError, match="of txid 7"):
        state.commit(attempt(2), puts(a=2))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nonsense", SchemaDrift),
        ("[]", SchemaDrift),
        ('{"version":1}', SchemaDrift),
        ('{"version":2}', SchemaVersionError),
        (
            '{"version":1,"columns":"{}","ledger":null,"opened":null,"touched_chunks":0,"keys":0}',
            SchemaDrift,
        ),
    ],
)
def test_a_head_that_is_not_ours_is_refused(text: str, error: type[TxtopoError]) -> None:
    state = OpaqueMap(DictMap({HEAD: text}), TABLE)

    for action in (state.create, lambda: state.claim(claim_of("topology", 1))):
        with pytest.raises(error):
            action()


def test_a_list_of_keys_that_is_lost_is_no_empty_list() -> None:
    texts: dict[str, str] = {}
    state = claimed(DictMap(texts))
    state.commit(attempt(1), puts(a=1))
    for name in ('["counts","touched",0]', '["counts","keys",0]'):
        lost = texts.pop(name)
        with pytest.raises(SchemaDrift, match="a key lost"):
            state.commit(attempt(1, 1), puts(a=2, b=2))
        texts[name] = lost
    del texts['["counts","keys",0]']
    with pytest.raises(SchemaDrift, match="a key lost"):
        contents(state)


def test_states_of_one_map_are_listed_with_their_columns() -> None:
    texts: dict[str, str] = {}
    more = StateTable("more", "transactional", Fields("id int"), Fields("name string"))
    state = claimed(DictMap(texts))
    claimed_more: StateBackend = OpaqueMap(DictMap(texts), more)
    claimed_more.claim(claim_of("other", 3))

    assert state.stored() == (TABLE, more)
    with pytest.raises(ForeignStateError):
        state.claim(claim_of("other", 4))


def test_the_texts_of_a_map_are_plain_ascii() -> None:
    """A plug-in stores strings, and need not know about the rest."""
    texts: dict[str, str] = {}
    claimed(DictMap(texts)).commit(attempt(1), puts(**{"ż\0\ud800\n🐘": 1}))

    for text in (*texts, *texts.values()):
        assert text.isascii()
        assert text.isprintable()


def contents(state: OpaqueMap) -> dict[str, int]:
    with state.snapshot() as snapshot:
        return {key[0]: row.current[0] for key, row in snapshot.items() if not row.deleted}


def test_a_name_that_json_takes_for_another_is_refused() -> None:
    """Both would have the documents of one state."""
    register_backend("dict", backing_map_factory(lambda _: DictMap({})))
    assert open_state("dict:", table="\N{GRINNING FACE}").open()

    with pytest.raises(TopologyError, match="two surrogates in a row"):
        open_state("dict:", table="\ud83d\ude00").open()
