"""Validation of the regular expressions of ``@check``: they must have the same meaning in Python and in RE2.

One engine checks rows with Python's `re`, another with RE2. A pattern that only one of them supports, or that
they interpret differently, is rejected when the schema is compiled. Classes such as ``\\d`` are ASCII sets.
"""

from __future__ import annotations

import re

MAX_REPEAT = 1000
MAX_GROUP_DEPTH = 32

_COUNT = re.compile(r"\{([0-9]*)(?:,([0-9]*))?\}")
_FLAGS = re.compile(r"\(\?(?:[ims]+(?:-[ims]+)?|-[ims]+)[:)]")
_POSSESSIVE = "possessive quantifiers are not supported"
_GROUPS = {
    "(?=": "lookahead is not supported",
    "(?!": "lookahead is not supported",
    "(?<=": "lookbehind is not supported",
    "(?<!": "lookbehind is not supported",
    "(?P=": "backreferences are not supported",
    "(?P>": "recursion is not supported",
    "(?(": "conditional groups are not supported",
    "(?>": "atomic groups are not supported",
    "(?#": "comments are not supported",
}


def pattern_problem(pattern: str) -> str | None:
    """Return why a pattern is not supported, or None when it is.

    >>> pattern_problem("^[a-z]+$")
    >>> pattern_problem("(a)\\\\1")
    'backreferences are not supported'
    """
    problem = _scan(pattern)
    if problem:
        return problem
    try:
        re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def _scan(pattern: str) -> str | None:
    """Find constructs that RE2 does not support or interprets differently; Python reports malformed patterns."""
    # The largest product of nested repetition counts for each open group, outermost group first. RE2 expands
    # counted repetition and limits that product.
    repeats = [1]
    last = 1
    at = 0
    while at < len(pattern):
        char = pattern[at]
        problem = None
        step = 1
        if char == "\\":
            step, last = 2, 1
            problem = _escape_problem(pattern[at + 1 : at + 2])
        elif char == "[":
            last = 1
            step, problem = _scan_class(pattern, at)
        elif char == "(":
            repeats.append(1)
            problem = _group_problem(pattern, at)
            if len(repeats) > MAX_GROUP_DEPTH:
                problem = f"group nesting exceeds {MAX_GROUP_DEPTH} levels"
        elif char == ")" and len(repeats) > 1:
            last = repeats.pop()
            repeats[-1] = max(repeats[-1], last)
        elif char == "{" and (count := _COUNT.match(pattern, at)):
            low, high = count.groups()
            last *= _number(high or low)
            repeats[-1] = max(repeats[-1], last)
            step = count.end() - at
            if not low:
                problem = "a repetition requires a minimum: {0,n}"
            elif max(last, _number(low)) > MAX_REPEAT:
                problem = f"repetition exceeds {MAX_REPEAT} times"
            elif pattern.startswith("+", at + step):
                problem = _POSSESSIVE
        elif char in "*+?" and pattern.startswith("+", at + 1):
            problem = _POSSESSIVE
        elif char not in "*+?":
            last = 1
        if problem:
            return problem
        at += step
    return None


def _number(digits: str | None) -> int:
    # Longer texts exceed every bound, and Python refuses to convert very long ones.
    return int(digits[:9]) if digits else 1


def _escape_problem(char: str) -> str | None:
    if char.isdigit() and char != "0":
        return "backreferences are not supported"
    if char == "Z":
        return "\\Z is not supported; use $"
    if char in ("u", "U", "N"):
        return f"\\{char} is not supported; write the character itself"
    if not char.isascii():
        return f"\\{char} is not supported; write {char}"
    return None


def _group_problem(pattern: str, at: int) -> str | None:
    if not pattern.startswith("(?", at):
        return None
    for prefix, problem in _GROUPS.items():
        if pattern.startswith(prefix, at):
            return problem
    if pattern.startswith(("(?:", "(?P<"), at) or _FLAGS.match(pattern, at):
        return None
    return f"group {pattern[at : at + 3]} is not supported"


def _scan_class(pattern: str, at: int) -> tuple[int, str | None]:
    """Return the length of a character class, and why it is not supported, or None."""
    start = at
    at += 2 if pattern.startswith("[^", at) else 1
    first = True
    while at < len(pattern):
        char = pattern[at]
        if char == "]" and not first:
            return at + 1 - start, None
        if char == "\\":
            escaped = pattern[at + 1 : at + 2]
            if escaped == "b":
                return 0, "\\b is not supported in a character class"
            problem = _escape_problem(escaped)
            if problem:
                return 0, problem
            at += 1
        elif char == "[":
            return 0, "write \\[ for a bracket in a character class"
        elif char in "-&~|" and pattern.startswith(char * 2, at):
            return 0, f"write \\{char} for a repeated {char} in a character class"
        first = False
        at += 1
    return at - start, None
