"""Topic patterns: RE2's syntax and answers, found in linear time. Google's RE2 itself is the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.shell import Shell
from proving import proves
from tidelog.broker.groups.patterns import compile_pattern
from tidelog.broker.names import LEGAL
from tidelog.errors import UsageError
from tidelog.wire.error_code import ErrorCode as E
from tries import tries

re2 = pytest.importorskip("re2")

NAMES = [
    "a",
    "ab",
    "aab",
    "abc",
    "A",
    "Ab",
    "b",
    "0",
    "10",
    "a.b",
    "a-b",
    "a_b",
    "orders-eu",
    "orders.v1",
    "k",
    "s",
    "-",
]


def oracle(pattern: str) -> object:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error:
        return None


def agrees(pattern: str, names: list[str]) -> None:
    expected = oracle(pattern)
    try:
        ours = compile_pattern(pattern)
    except UsageError:
        assert expected is None, f"RE2 takes {pattern!r}"
        return
    assert expected is not None, f"RE2 refuses {pattern!r}"
    for name in names:
        assert ours.matches(name) == (expected.fullmatch(name) is not None), (pattern, name)  # type: ignore[attr-defined]


# One pattern a word; the kinds of things that RE2 knows, and of those that it refuses.
TABLE = r"""
a ab () (a|b)* a* a+? a?? .* .+b |a a| | a||b (a|)b (|a)b (?:a|ab)(?:c|bcd)? (a|b|(c|(a)b)
[ab]+ [^ab] [a-c]+ []a]+ [^]a] [a\-b] [-a] [a-] [a-c-e] [.] [a-a] [a\]b] [ab [] [ [b-a] [a-\d] [\d-z]+ [a\b] [[a]] [a|]
a{2} a{1,2}b a{0,} a{,2} a{ a{1 { } a{2}{3} (a{2}){3} a{1}? x{2}?? x{2,1} a{0}b a{0,0}b (){3} (){5}a
{2} a|{2} ({2}) ^{2}
a** a+* a?+ * +a ? (*a) a|* ) ( a) (a a(b|c
a{1000} a{1001} (a{100}){11} ((a{10}){10}){10} ((a{10}){10}){11} ((a{2,}){600}){2}
^a$ ^a a$ \Aa\z a\Z \ba\b a\b.b a\B- \Ba (^a)*b ^* $*a \b* \b{2}a (a$|b)c? a^b
(?i)aB (?i:a)b ((?i)a)b a(?i)b (?-i)a (?i-s)A (?i)a|b ((?i)a|b)B (?i)[^a] (?i)k (?i)[[:upper:]]+ (?i)\p{Lu}+ a(?i)*
(?z)a (? (?i (?i-)a (?)a (?:) (?-)a (?--i)a (?ims)a.b (?U)a (?i:)
(?P<n>a) (?<n>a) (?P<>a) (?P<1>a) (?P<n>a)(?P<n>b) (?P<a-b>a) (?P<n (?P=n) (?=a) (?!a) (?<=a) (?<!a) (?>a) (?#a) (?:a)b
\d+ \D \w+ \W \s \S+ [\d.]+ [^\d] [\W] [^\D] \pL+ \PL \p{Lu} \p{^Lu} \P{^Lu} \p{L \p \p{Nonsense} \pQ [\pN.]+ [\p{^L}]
[[:alpha:]]+ [[:^alpha:]] [[:word:].]+ [[:foo:]] [[:alpha] [[:] [:alpha:] [[:alpha:] [[:alpha:]-z]
\. a\.b \- \_ \a \t \n \e \y \ \1 \12 \141 \0141 \08 \8 \x61 \x{61} \x{61 \x6 \x{} \x{110000} \xzz \C \E
\Qa.b\E \Qa.b \Qab\E* \Q\Ea \Q\E* a\Q\E* a\Qb\E* [\Qa\E]
é aé? [éa] (?i)ſ (?i)[ſ] (?i)K [Ā-￿] (?i)[Ā-Ȁ]
orders-.* orders\.(v1|v2) (orders|stock)[-.].+ .*.*.*b (a*)*b (a|a)*b ((a?)*)*
"""


@proves("T3")
@pytest.mark.parametrize("pattern", ["", *TABLE.split()])
def test_what_re2_says(pattern: str) -> None:
    agrees(pattern, NAMES)


ATOMS = "a b . c - _ 0 | ( ) [ ] ^ $ * + ? { } \\ , : i < > P = ! # k K"
WORDS = "(?: (?i) [^ [a-c] \\d \\w \\b \\B {2} {1,2} {0,} .* \\. [[:alpha:]] \\Q \\E"
pieces = st.sampled_from(f"{ATOMS} {WORDS}".split())
names = st.lists(st.text(st.sampled_from("abcABkK.-_0s"), max_size=6), max_size=5)


@proves("T3")
@tries(100)  # an example takes a millisecond, and most are refused early
@given(st.lists(pieces, max_size=9).map("".join), names)
def test_any_pattern_gets_the_answer_that_re2_gives(pattern: str, some: list[str]) -> None:
    agrees(pattern, [*some, *NAMES[:6]])


@proves("T3")
@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+$b", "(.*)*b", "([a-z]+)*-", "(a?){200}a{200}b", ".*.*.*.*.*.*.*.*b"]
)
def test_a_pattern_that_would_backtrack_for_ever_takes_a_bounded_number_of_steps(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    before = compiled.work
    assert not compiled.matches("a" * 249)
    assert compiled.work - before <= 250 * len(compiled._program)


@proves("T3")
def test_what_is_remembered_is_bounded_and_changes_no_answer() -> None:
    pattern = "(.*a.{12}|b)+"
    compiled = compile_pattern(pattern)
    expected = oracle(pattern)
    letters = "ab"
    for number in range(3_000):
        name = "".join(letters[number * at * 2654435761 >> 7 & 1] for at in range(1, 40))
        assert compiled.matches(name) == (expected.fullmatch(name) is not None)  # type: ignore[attr-defined]
    assert len(compiled._states) <= 1_000 + 40, "no more than one name's worth above the bound"


@proves("T3")
def test_a_pattern_that_is_too_large_is_refused_by_size() -> None:
    with pytest.raises(UsageError, match="longer than"):
        compile_pattern("a" * 4_097)
    with pytest.raises(UsageError, match="too large"):
        compile_pattern("[ab]{1000}" * 5)
    with pytest.raises(UsageError, match="nested"):
        compile_pattern("(" * 200 + ")" * 200)
    with pytest.raises(UsageError, match="repeated more than"):
        compile_pattern("(((){100}){100}){100}")


@proves("T3")
@pytest.mark.slow
def test_a_pattern_that_costs_too_much_over_all_topics_is_refused() -> None:
    names = {f"{number:0128b}".replace("0", "a").replace("1", "b"): 1 for number in range(0, 1 << 20, 997)}
    shell = Shell(names)
    greedy = "(" + "|".join(f".*a.{{{number}}}" for number in range(20, 60)) + ")"
    assert shell.enter("m", subscribed_topic_regex=greedy).error_code == E.INVALID_REGULAR_EXPRESSION


@proves("T3")
def test_every_legal_character_is_known() -> None:
    for character in LEGAL:
        assert compile_pattern(".").matches(character)
        assert compile_pattern(f"[{character}]" if character != "-" else "[-]").matches(character)
