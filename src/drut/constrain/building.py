"""Builds the grammar library's matcher of a constraint."""

from __future__ import annotations

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from drut.constrain import faults
from drut.constrain.constraint import Constraint
from drut.constrain.reasons import INSIDE, reason
from drut.errors import RequestError

# Limits of the library. A state of a lexer takes 1 to 2 KB. The library uses about 50,000 units of fuel per millisecond
# while it compiles and 14,000 while it makes a mask, and 20,000 items of a row per millisecond.
LEXER_STATES = 50_000
PARSER_LIMITS = LLParserLimits(max_items_in_row=2000, initial_lexer_fuel=1_000_000, step_lexer_fuel=200_000,
                               step_max_items=50_000, max_lexer_states=LEXER_STATES, max_grammar_size=500_000,
                               verbose_errors=False)


def build(tokenizer: LLTokenizer, constraint: Constraint) -> LLMatcher:
    """Returns the matcher; raises RequestError, with the library's reason, if the constraint does not compile or
    allows no output."""
    matcher = _matcher(tokenizer, constraint)
    if matcher.is_error():
        raise RequestError(f"{constraint.kind}: {_placed(tokenizer, constraint, matcher.get_error())}")
    # Finding the tokens that are forced at the start may take seconds or exceed the limits, so it is done here and not
    # between two steps. Order: the mask first, because the library makes it without the interpreter's lock.
    matcher.compute_bitmask()
    if matcher.is_error():
        raise RequestError(f"{constraint.kind}: {reason(matcher.get_error())}")
    first = matcher.compute_ff_tokens()[:1]
    tried = matcher.deep_copy()
    if first:
        tried.try_consume_tokens(first)
    else:
        tried.compute_bitmask()  # fails if no token can come
    if tried.is_error():
        raise RequestError(f"{constraint.kind}: {reason(tried.get_error())}")
    return matcher


def _matcher(tokenizer: LLTokenizer, constraint: Constraint) -> LLMatcher:
    return LLMatcher(tokenizer, _grammar(constraint), limits=PARSER_LIMITS, log_level=0)


def _placed(tokenizer: LLTokenizer, constraint: Constraint, error: str) -> str:
    """Returns the reason, with its place in a schema."""
    why = reason(error, placed=constraint.kind == "lark")
    if constraint.kind != "json_schema" and INSIDE not in error:
        return why

    def refused(source: str) -> str:
        matcher = _matcher(tokenizer, Constraint("json_schema", source))
        return reason(matcher.get_error()) if matcher.is_error() else ""

    path = faults.place(constraint.source, why, refused)
    return f"{why}, at {path}" if path else why


def _grammar(constraint: Constraint) -> str:
    match constraint.kind:
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(constraint.source)
        case "regex":
            return LLMatcher.grammar_from_regex(constraint.source)
        case _:
            return LLMatcher.grammar_from_lark(constraint.source)
