"""Says in plain words what the YAML parser found wrong."""

from __future__ import annotations

import yaml

from inspectd.config.faults import Fault

_CURES = (  # words of libyaml and of PyYAML's own parser
    (
        "mapping values are not allowed",
        "a `: ` where none can be (is the line above complete, is a value with `: ` in quotes?)",
    ),
    ("did not find expected ',' or", "a bracket or brace is not closed, or a comma is missing"),
    ("expected ',' or", "a bracket or brace is not closed, or a comma is missing"),
    ("unexpected end of stream", "a quote or bracket is never closed"),
    ("did not find expected key", "this line's indentation does not fit the lines above, or a quote is not closed"),
    ("did not find expected '-'", "a list entry must begin with `- `, indented as the others of its list"),
    ("expected <block end>", "this line's indentation does not fit the lines above, or a quote is not closed"),
    ("could not find expected ':'", "`: ` is missing after a key (a blank must follow the colon)"),
    ("undefined alias", "aliases (`*name`) are not supported; text that begins with * goes in quotes"),
    ("cannot start any token", "text that begins with @, ` or % goes in quotes"),
    (
        "found unknown escape character",
        'a backslash in "…" begins an escape; use single quotes or double the backslash',
    ),
    ("nesting depth", "nested far too deep; a bracket is wrong"),
    ("undefined tag handle", "text that begins with ! goes in quotes"),
    ("block sequence entries are not allowed", "a `- ` where none can be; a list begins on a line of its own"),
)


def syntax_fault(error: yaml.MarkedYAMLError, text: str) -> Fault:
    """Give the fault for a parser's error; names the line where an open bracket or quote began."""
    problem = error.problem or error.context or "cannot be read"
    cure = next((cure for words, cure in _CURES if words in problem), problem)
    marks = [mark.line + 1 for mark in (error.context_mark, error.problem_mark) if mark is not None]
    last_line = text.count("\n") + 1
    began, line = (min(line, last_line) for line in (marks[0], marks[-1])) if marks else (1, 1)
    if "expected ':'" in problem:
        line = began  # the key stands there; the parser gives up at the next one
    since = f" (begun on line {began})" if began != line else ""
    return Fault((), f"is not YAML: {cure}{since}", line)
