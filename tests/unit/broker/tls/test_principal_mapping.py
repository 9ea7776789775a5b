"""Rules of ssl.principal.mapping.rules. The expected names are those of Kafka's SslPrincipalMapper."""

import pytest

from odradek.broker.config.property import ConfigError
from odradek.broker.tls.principal_mapping import SUBJECT_CHARACTERS_MAX, PrincipalMapping

SERVICE = "CN=serviceUser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
ADMIN = "CN=adminUser,OU=Admin,O=U"
SEVERAL = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        ("", SERVICE, None),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", ADMIN, None),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", ADMIN, ADMIN),
        (SEVERAL, SERVICE, "serviceuser"),
        (SEVERAL, SERVICE.replace("ServiceUsers", "Others"), "serviceuser@others"),
        (SEVERAL, ADMIN, "ADMINUSER"),
        ("RULE:(.*)/$1x/", "CN=a", "CN=axx"),  # replaceAll also replaces the empty match at the end
        (r"RULE:CN=(\w+).*/$12-$0/", "CN=a,O=b", "a2-CN=a,O=b"),
        (r"RULE:CN=(\w+).*/$2-$1/", "CN=a,O=b", "$2-a"),
        (r"RULE:CN=(\w+).*/\$1\//", "CN=a,O=b", "$1/"),
        ("RULE:(a)|CN=.*/[$1]/", "CN=b", "[]"),
        ("RULE:(?i)cn=(A)/$1/", "CN=a", "a"),
        (" RULE:CN=(.*?)/$1/ ,DEFAULT", "CN=Ä", "Ä"),
        ("RULE:CN=(.*?)/$1/U", "CN=ß", "SS"),
        ("RULE:CN=(.*?)/$1/", "CN=a\n", None),
        ("RULE:(?i)cn=(.*)/$1/", "CN=\u212a", None),  # RE2 regards the Kelvin sign as `k`
        ("RULE:CN=|b*/x/", "CN=", "xx"),
        ("RULE:(?:a|CN=a.*)/<$0>/", "CN=aba", "<CN=aba>"),
        ("RULE:(.*)/$1/", f"CN={'a' * SUBJECT_CHARACTERS_MAX}", None),
        ("RULE:(.*)/$1/,DEFAULT", f"CN={'a' * SUBJECT_CHARACTERS_MAX}", f"CN={'a' * SUBJECT_CHARACTERS_MAX}"),
    ],
)
def test_first_matching_rule_gives_the_name(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalMapping(rules).name_of(subject) == name


@pytest.mark.parametrize(
    "rules",
    [
        "junk",
        "DEFAULT junk",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULES:a/b/",
        "RULE:CN=.*/$1/",
        "RULE:CN=(.*)/a$/",
        "RULE:[a[b]]/x/",
        "RULE:[a&&b]/x/",
        r"RULE:[\d[b]]/x/",
        "RULE:(?P<n>a)/x/",
        "RULE:(?<n>a)/${n}/",
        r"RULE:\p{L}+/x/",
        r"RULE:a\Z/x/",
        "RULE:a{,2}/x/",
        "RULE:(/x/",
        "RULE:CN=(?!admin).*/x/",
        r"RULE:(a)\1/x/",
        "RULE:CN=.*+/x/",
        "RULE:(?i)CN=é/x/",
    ],
)
def test_rule_that_is_invalid_or_that_python_reads_in_another_way_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules: "):
        PrincipalMapping(rules)


def test_escaped_bracket_in_a_class_is_no_nested_class() -> None:
    assert PrincipalMapping(r"RULE:CN=([\[a\]]+)/$1/").name_of("CN=[a]") == "[a]"


@pytest.mark.parametrize("rules", [SEVERAL, "RULE:^(([^,]+,?)+)+$/$1/", "RULE:(.*,)*CN=(.*,)*x/$1/"])
def test_subject_with_many_repetitions_is_matched_in_linear_time(rules: str) -> None:
    """A backtracking engine needs hours for these subjects, which the owner of a certificate chooses."""
    for part in ("OU=a,O=a,L=a,ST=a,", "CN=x,", r"\,OU=\,O=\,L="):
        subject = f"CN={part * (SUBJECT_CHARACTERS_MAX // len(part) - 1)}"
        assert len(subject) <= SUBJECT_CHARACTERS_MAX
        PrincipalMapping(rules).name_of(subject)
