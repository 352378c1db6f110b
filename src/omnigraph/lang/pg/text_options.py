"""Rules of ``@text``: the options of full-text analysis and their values."""

from __future__ import annotations

from omnigraph.lang.diagnostics import Diagnostics
from omnigraph.lang.pg.schema_ast import AnnotationDecl, Name
from omnigraph.lang.schema import LANGUAGES, LiteralValue
from omnigraph.lang.stop_word_lists import STOP_WORD_LANGUAGES
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import PropType, Scalar

_OPTIONS = ("language", "stem", "stop_words", "ascii_fold", "ngram", "with_position")
_FLAGS = ("stem", "ascii_fold", "with_position")
_MAX_NGRAM = 16


def check_text_options(item: AnnotationDecl, place: str, kind: PropType, report: Diagnostics) -> bool:
    """Report what is invalid about ``@text`` on a property; return whether all of it is valid."""
    before = len(report.recorded)
    if kind.scalar is not Scalar.STRING or kind.is_list or kind.is_enum:
        report.add(item.span, f"@text is only supported on String properties, and {place} is {kind.core}")
    value = item.value.text if isinstance(item.value, Name) else item.value
    if value is not None and (value != "simple" or item.kwargs):
        hint = 'write @text, @text(simple) or @text(language: "english", stem: true)'
        report.add(item.span, f"@text on {place} takes `simple` or options", hint=hint)
        return False
    names = [name for name, _ in item.kwargs]
    options = dict(item.kwargs)
    for name, given in item.kwargs:
        if name not in _OPTIONS:
            known = f" ({', '.join(_OPTIONS)} exist)"
            report.add(
                item.span,
                f"@text on {place} has unknown option '{name}'{known}",
                hint=suggestion(name, list(_OPTIONS)),
            )
        elif names.count(name) > 1:
            report.add(item.span, f"@text on {place} declares '{name}' multiple times")
        else:
            _check_value(item, place, name, given, report)
    language = str(options.get("language", "english"))
    if options.get("stop_words") is True and language in LANGUAGES and language not in STOP_WORD_LANGUAGES:
        report.add(
            item.span,
            f"@text on {place}: there is no list of stop words for {language}",
            hint=f"give the words as a string; lists exist for {', '.join(STOP_WORD_LANGUAGES)}",
        )
    return len(report.recorded) == before


def _check_value(
    item: AnnotationDecl, place: str, name: str, value: LiteralValue, report: Diagnostics
) -> None:
    hint = None
    if name == "language":
        if value in LANGUAGES:
            return
        expected = "the name of a language"
        hint = suggestion(str(value), list(LANGUAGES)) or f"languages: {', '.join(LANGUAGES)}"
    elif name in _FLAGS:
        if isinstance(value, bool):
            return
        expected = "true or false"
    elif name == "stop_words":
        if isinstance(value, bool) or (isinstance(value, str) and value.split()):
            return
        expected = "true, false or a string of words"
    else:
        if isinstance(value, int) and not isinstance(value, bool) and 2 <= value <= _MAX_NGRAM:
            return
        expected = f"an integer from 2 to {_MAX_NGRAM}"
    report.add(item.span, f"@text on {place}: {name} must be {expected}, got {value}", hint=hint)
