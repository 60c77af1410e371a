"""The name in a certificate as Java writes it, and the rules that make a user of it."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.broker.access.principals import distinguished_name, parse_rules, user_of
from tidelog.errors import ConfigError

NAME = "CN=kafka1.example.com,OU=Sales,O=Example,C=US"


@proves("T10")
def test_a_name_is_written_as_java_writes_it():
    subject = ((("countryName", "US"),), (("organizationName", 'A, "B"'),), (("commonName", " x"),))
    assert distinguished_name(subject) == 'CN=\\ x,O=A\\, \\"B\\",C=US'
    assert distinguished_name(((("emailAddress", "a@b"),),)) == "1.2.840.113549.1.9.1=#1603614062"


@proves("T10")
@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        ("", NAME),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", "kafka1.example.com@Sales"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$2/L", "sales"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$2/U,DEFAULT", "SALES"),
        (r"RULE:^OU=(.*)$/$1/ , DEFAULT", NAME),
        (r"RULE:^OU=(.*)$/$1/", None),
        (r"RULE:^CN=([^,]*),.*$/a\/b $1/", "a/b kafka1.example.com"),
    ],
)
def test_the_first_rule_that_fits_counts(rules, user):
    assert user_of(NAME, parse_rules(rules)) == user


@proves("T10")
@pytest.mark.parametrize("rules", ["RULE:x", "RULE:(/x/", "nonsense", "DEFAULT,RULE"])
def test_what_is_no_rule_is_refused(rules):
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)
