"""The largest entries of many keys at once, in columns: what ``TopN`` combines.

An entry is a value, or a list of a value and its labels. The entries of a key are a JSON list, as
it is stored, with decimals and times as text. Rows become such lists (:func:`largest_of_rows`), and
lists are united (:func:`largest_of_texts`). The order is that of ``TopN``: the largest value first,
and among equal values the larger JSON text of the labels.

Arrow would order or write some entries otherwise than Python does: numbers that are not finite, and
columns of several types. They are left to ``TopN``, which combines key by key. A column of several
types comes about when an input is widened: then stored values are whole numbers among floats.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.state.json_columns import joined_texts, json_texts
from txtopo.state.keyed_columns import KeyedRows, flags_of, order_of

# Fewer rows or lists are combined faster key by key, in less than a millisecond.
ROWS_MIN = 100

# Columns that have the values of JSON exactly. Texts together may exceed 2 GiB.
_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.large_string(),
}

# JSON text that holds one text or no text, as regular expressions.
_TEXT = r'"(?:[^"\\]|\\.)*"'
_PART = rf'(?:{_TEXT}|[^][",\s]+)'

_COMMA = pa.scalar(",", pa.large_string())
_NO_ENTRIES = pa.array(["[]"], pa.large_string())


def largest_of_rows(n: int, rows: KeyedRows) -> pa.Array | None:
    """Return the list of the *n* largest entries of each key, as text.

    Args:
        n: The number of entries.
        rows: Columns of values and of labels. A row without value does not count.

    Returns:
        None if there are few rows, if a number is not finite, or if the text is too long for a
        column.
    """
    if len(rows.keys) < ROWS_MIN or not all(map(_is_finite, rows.columns)):
        return None
    return _stored(_largest(n, rows.filter(flags_of(rows.columns[0].is_valid()))))


def largest_of_texts(
    n: int, labels: int, values: KeyedRows, scale: int | None = None
) -> pa.Array | None:
    """Return the list of the *n* largest entries of each key, as text, from lists of entries.

    Args:
        n: The number of entries.
        labels: How many labels an entry has.
        values: A column of lists of at most *n* entries, as this module and ``TopN`` write them.
            NULL has no entries. A list that is the only one of its key is returned as it is.
        scale: How many digits the values have after the point, if they are decimals.

    Returns:
        None if there are few lists, if a text that has to be united is not such a list, if a column
        of the entries has several types, or if the text is too long for a column.
    """
    if len(values.keys) < ROWS_MIN:
        return None
    values = values.filter(flags_of(values.columns[0].is_valid()))
    # Most lists are the only one of their key.
    alone = np.bincount(values.keys, minlength=values.count)[values.keys] == 1
    single, several = values.filter(alone), values.filter(~alone)
    numbers, keys = np.unique(several.keys, return_inverse=True)
    entries = _entries_of(KeyedRows(keys, len(numbers), several.columns), labels, scale)
    if entries is None:
        return None
    known = single.columns[0].cast(pa.large_string())
    texts = pa.concat_arrays([known, _largest(n, entries), _NO_ENTRIES])
    places = np.full(values.count, len(texts) - 1)
    places[np.append(single.keys, numbers)] = np.arange(len(texts) - 1)
    return _stored(texts.take(pa.array(places)))


def _entries_of(lists: KeyedRows, labels: int, scale: int | None) -> KeyedRows | None:
    """Return the entries of lists; None if they are not entries that Arrow has as Python does."""
    (texts,) = lists.columns
    entry = _PART if not labels else rf"\[{_PART}(?:,{_PART}){{{labels}}}\]"
    form = rf"^\[(?:{entry}(?:,{entry})*)?\]$"
    try:
        if not pc.all(pc.match_substring_regex(texts, form), min_count=0).as_py():
            return None
        # One list for each text. A list for each entry takes three times as long, mostly since
        # Python looks for unused objects again and again.
        flat = pc.replace_substring_regex(texts, rf"({_TEXT})|[][]", r"\1").to_pylist()
        parsed = json.loads(f"[[{'],['.join(flat)}]]") if flat else []
        parts = list(chain.from_iterable(parsed))
        found = [_column(parts[at :: labels + 1]) for at in range(labels + 1)]
        if scale is not None and found[0] is not None:
            found[0] = found[0].cast(pa.decimal128(38, scale))
    except (ValueError, OverflowError):  # also a form that is too long, of thousands of labels
        return None
    columns = [column for column in found if column is not None and _is_finite(column)]
    if len(columns) < len(found) or columns[0].null_count:
        return None
    keys = np.repeat(lists.keys, [len(each) // (labels + 1) for each in parsed])
    return KeyedRows(keys, lists.count, columns)


def _column(values: Sequence[Any]) -> pa.Array | None:
    """Return values of JSON as a column; None if it would have several types.

    Raises:
        OverflowError: A whole number exceeds 64 bits.
        ValueError: A text is not Unicode.
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values), pa.large_string())
    (kind, *others) = kinds
    return None if others or kind not in _TYPES else pa.array(values, _TYPES[kind])


def _largest(n: int, entries: KeyedRows) -> pa.Array:
    value, *labels = entries.columns
    sort = {"key": pa.array(entries.keys), "value": value}
    if labels:
        # The bracket counts: it decides between two texts of which one begins with the other.
        parts = [part for label in labels for part in (",", _texts(label))]
        sort["labels"] = joined_texts([*parts, "]"])
    order = order_of(pa.table(sort), list(sort), falling=("value", "labels"))
    counts = np.bincount(entries.keys, minlength=entries.count)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order.filter(pa.array(rank < n))
    texts = _texts(value.take(kept))
    if labels:
        texts = joined_texts(["[", texts, sort["labels"].take(kept)])
    ends = np.append(0, np.cumsum(np.minimum(counts, n)))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts)
    return joined_texts(["[", pc.binary_join(lists, _COMMA), "]"])


def _texts(column: pa.Array) -> pa.Array:
    """Return the JSON of values; times and decimals are text, as ``TopN`` writes them."""
    if pa.types.is_decimal(column.type):
        values = [None if value is None else format(value, "f") for value in column.to_pylist()]
        column = pa.array(values, pa.large_string())
    elif pa.types.is_timestamp(column.type):
        texts = pc.replace_substring(column.cast(pa.large_string()), " ", "T")
        column = pc.replace_substring(texts, "Z", "+00:00")
    elif pa.types.is_date(column.type):
        column = column.cast(pa.large_string())
    return json_texts(column)


def _is_finite(column: pa.Array) -> bool:
    return not pa.types.is_floating(column.type) or bool(
        pc.all(pc.is_finite(column), min_count=0).as_py()
    )


def _stored(texts: pa.Array) -> pa.Array | None:
    """Return texts in the type of a stored column; None if they exceed it."""
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return None
