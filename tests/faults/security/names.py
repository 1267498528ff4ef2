"""Hostile names for tables, columns and ids: they mean something in SQL, in a path or in a URL."""

from __future__ import annotations

VICTIM = "victim"
"""A table that is there before, and has to be there afterwards."""

ODD = {
    "quote": "it's",
    "double quote": 'a"b',
    "backtick": "a`b",
    "semicolon": "a;b",
    "drop by quote": "x'; DROP TABLE victim; --",
    "drop by double quote": 'x"; DROP TABLE victim; --',
    "drop by backtick": "x`; DROP TABLE victim; --",
    "drop by bracket": "x]; DROP TABLE victim; --",
    "comment": "a--/*b*/#c",
    "upwards": "..",
    "far upwards": "../../../evil",
    "absolute": "/etc/evil",
    "in the middle": "a/../../b",
    "backslashes": "..\\..\\evil",
    "encoded": "%2e%2e%2fevil",
    "NUL": "a\0b",
    "newline": "a\nb",
    "percent": "%s %(x)s %%",
    "bind": ":bind ?1 $1 {x}",
    "glob": "a*?[b]",
    "blank at the end": "a ",
    "word of SQL": "select",
    "not ASCII": "tabelle-\u00fc-\u8868",
    "emoji": "a\N{ELEPHANT}b",
    "surrogate": "a\ud800b",
    "300 characters": "x" * 300,
}
