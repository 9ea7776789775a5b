"""Checks of hand-written text against the rules of docs/glossary.md: banned words, openings, lengths.

`python -m tests.support.prose [PATH ...]` prints the findings of the files or folders. Without a path, it reads the
repository.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
GENERATED: Final = ("protocol/messages/", "protocol/records/")
SELF: Final = ("tests/support/prose.py", "tests/test_tidy.py", "tests/unit/support/test_prose.py", "docs/glossary.md")
FIRST_LINE_WORDS_MAX: Final = 25
"""Maximum words of a log event, an error message, and the first sentence of a docstring."""
SENTENCE_WORDS_MAX: Final = 40
PROSE_WORDS_MIN: Final = 4
"""A string literal with fewer words is a name or a value, not prose."""

# Pattern (case-insensitive, whole words) -> replacement. The glossary says why.
BANNED: Final = {
    r"who|whom|whoever|whomever": "the broker, client, replica or producer, by its name",
    r"nobody|somebody|anybody|everybody|someone|anyone|everyone": "the process or the person, by its name",
    r"verdicts?": "failure declaration, result or refusal",
    r"twins?": "duplicate node id, or fake",
    r"wish(es|ed)?": "pending ISR change, or request",
    r"(?<!in-)(?<!in )doubts?": "suspected leaders",  # an in-doubt transaction is a term of the glossary
    r"census": "memory accounting",
    r"drawn": "generated, sampled or rendered",
    r"bad luck|nemesis|strikes?|struck": "fault, injected",
    r"unhurried|hurry|hurries|hurried": "deferred, immediate",
    r"mend(s|ed|ing|er)?": "repair",
    r"knock(s|ed|ing)?": "TCP probe",
    r"rumou?rs?": "gossip entry",
    r"goodbyes?": "leave message",
    r"lanes?": "queue or connection purpose",
    r"strangers?": "unknown node",
    r"mourn(s|ed|ing)?": "handle the failure of",
    r"life|lives|lived": "incarnation, run or lifetime",
    r"death|deaths|dies|died|dying": "failure, terminates",
    r"(?<!power )cuts?|cutting|cut off": "truncate, partition (network)",
    r"(is|are|was|were|be|been|being) told|tells?|told": "sends, notifies, receives",
    r"hears?|heard": "receives, learns",
    r"asks?|asked|asking": "requests",
    r"answers?|answered|answering|unanswered": "response, reply",
    r"rooms?": "capacity",
    r"for good|for ever|forever": "permanently",
    r"as it is|as they are|as it was|as they were": "unchanged",
    r"at once": "immediately, or in one batch",
    r"by itself|by themselves|of its own accord": "automatically, or name the cause",
    r"of late": "recently",
    r"riddles?|proverbs?": "plain words",
    r"kafka-facts": "the KIP, the Jira issue or Kafka's class",
}
# Exact phrases that a banned word may be part of: terms of Kafka, of other projects, and of tools.
ALLOWED_PHRASES: Final = re.compile(r"dead letter|time to live|`[^`]*`", re.IGNORECASE)
BANNED_PATTERNS: Final = tuple(
    (re.compile(rf"(?<![\w`./-])(?:{pattern})(?![\w`/-])", re.IGNORECASE), instead)
    for pattern, instead in BANNED.items()
)
ANY_BANNED: Final = re.compile(
    rf"(?<![\w`./-])(?:{'|'.join(f'(?:{pattern})' for pattern in BANNED)})(?![\w`/-])", re.IGNORECASE
)
"""Matches if one of BANNED_PATTERNS does. One search of each text instead of one per pattern."""
BANNED_OPENINGS: Final = frozenset(
    [
        "who",
        "whom",
        "whose",
        "what",
        "whether",
        "of",
        "how",
        "why",
        "that",
        "those",
        "it",
        "they",
        "nobody",
        "somebody",
        "everybody",
        "everything",
        "nothing",
        "is",
        "are",
        "was",
        "does",
        "did",
        "has",
        "have",
        "may",
        "can",
        "not",
        "now",
        "so",
        "but",
        "and",
        "or",
        "then",
        "such",
    ]
)
"""First words of a docstring that make it an ellipsis or a question.

A docstring begins with a verb or with a noun phrase.
"""
PUBLIC_IDENTIFIERS: Final = frozenset([("testing/kafka_cluster.py", "cut")])
"""File and name of a method of the public API that is an exception: `cluster.cut(1, 2)` blocks a network link."""
BANNED_IDENTIFIERS: Final = frozenset(
    [
        "answer",
        "answers",
        "answered",
        "ask",
        "asks",
        "asked",
        "tell",
        "tells",
        "told",
        "verdict",
        "verdicts",
        "wish",
        "wishes",
        "mender",
        "mend",
        "mends",
        "doubt",
        "doubts",
        "census",
        "lane",
        "lanes",
        "knock",
        "knocks",
        "unhurried",
        "twin",
        "twins",
        "mourn",
        "rumour",
        "rumours",
        "nemesis",
        "stranger",
        "strangers",
        "drawn",
        "life",
        "lives",
        "hear",
        "hears",
        "heard",
        "goodbye",
        "room",
        "rooms",
        "bury",
        "cut",
        "cuts",
        "death",
        "deaths",
        "die",
        "dies",
        "died",
        "hurry",
        "who",
        "whoever",
        "nobody",
        "somebody",
        "everybody",
        "struck",
        "strike",
        "strikes",
    ]
)
CODE_BLOCK: Final = re.compile(r"^```.*?^```|^(?: {4}|\t)[^\n]*$", re.DOTALL | re.MULTILINE)
LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
SENTENCE_END: Final = re.compile(r"(?<=[.!?:])[\"')\]]*\s+(?=[A-Z0-9`\"'(*-])|\n\s*\n|\n\s*(?=[-*|>]|\d+\. )")
IN_DOUBT = re.compile("in_doubt", re.IGNORECASE)
"""Part of an identifier that is a term of the glossary: an in-doubt transaction (KIP-939)."""
WORD_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of hand-written text. `kind`: docstring, comment, log event, error, string, document, or transcript."""

    kind: str
    line: int
    text: str


def tracked(*patterns: str) -> list[str]:
    """Tracked and new files, without generated ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = sorted(set(listing.stdout.split()))
    return [name for name in names if not name.startswith(GENERATED) and (ROOT / name).is_file()]


def words(text: str) -> int:
    return len(text.split())


def sentences(text: str) -> Iterator[str]:
    for sentence in SENTENCE_END.split(text):
        if sentence and sentence.strip():
            yield " ".join(sentence.split())


# ---- texts of a Python file -----------------------------------------------------------------------------------------


def nodes_of(source: str) -> Sequence[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def texts_of_python(source: str, nodes: Sequence[ast.AST]) -> Iterator[Text]:
    """Texts of a Python file; `nodes` are all nodes of its tree."""
    yield from _comments(source)
    docstrings = {id(node): node for node in _docstring_nodes(nodes)}
    for constant in docstrings.values():
        yield Text("docstring", constant.lineno, str(constant.value))
    events, errors = _events_and_errors(nodes)
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) in docstrings or id(node) in inside:
            continue
        text = _literal(node)
        if text is None or words(text) < PROSE_WORDS_MIN:
            continue
        kind = "log event" if id(node) in events else "error" if id(node) in errors else "string"
        yield Text(kind, getattr(node, "lineno", 1), text)


def _comments(source: str) -> Iterator[Text]:
    """Comments; those on consecutive lines are one text."""
    start, last, parts = 0, -1, [""]
    parts.clear()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#").strip()
        if re.match(r"(noqa|type:|isort:|fmt:|pragma|!)", text):
            text = re.sub(
                r"^(noqa(: *[A-Z0-9, ]+)?|type: ignore(\[[^\]]*\])?|isort: *\w+|fmt: *\w+|pragma.*|!.*)", "", text
            )
        if token.start[0] != last + 1 and parts:
            yield Text("comment", start, " ".join(parts))
            parts = []
        if not parts:
            start = token.start[0]
        parts.append(text.strip("- "))
        last = token.start[0]
    if parts:
        yield Text("comment", start, " ".join(parts))


def _docstring_nodes(nodes: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    """Docstrings of modules, classes and functions, and the strings behind assignments that document them."""
    for node in nodes:
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement.value


def _events_and_errors(nodes: Sequence[ast.AST]) -> tuple[set[int], set[int]]:
    events: set[int] = set()
    errors: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS:
            events.update(id(argument) for argument in node.args[:1])
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            errors.update(id(argument) for argument in node.exc.args)
    return events, errors


def _literal(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)  # type: ignore[misc]
    return None


def identifiers(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Names that a file defines: classes, functions, arguments, attributes and variables."""
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


# ---- rules ----------------------------------------------------------------------------------------------------------


def banned_words(text: str) -> Iterator[str]:
    plain = ALLOWED_PHRASES.sub(" ", text)
    if not ANY_BANNED.search(plain):
        return
    for pattern, instead in BANNED_PATTERNS:
        found = pattern.search(plain)
        if found:
            yield f"'{found[0]}': write {instead}"


def findings_of_text(text: Text) -> Iterator[str]:
    yield from banned_words(text.text)
    for sentence in sentences(text.text):
        if words(sentence) > SENTENCE_WORDS_MAX and "|" not in sentence:
            yield f"a sentence of {words(sentence)} words: {sentence[:60]}..."
    if text.kind == "docstring":
        first = next(sentences(text.text), "")
        opening = re.match(r"[A-Za-z]+", first)
        if opening and opening[0].lower() in BANNED_OPENINGS and opening[0][0].isupper():
            yield f"the docstring begins with '{opening[0]}': begin with a verb or a noun phrase"
    if text.kind in {"docstring", "log event", "error"}:
        first = next(sentences(text.text), "")
        if FIRST_LINE_WORDS_MAX < words(first) <= SENTENCE_WORDS_MAX:
            yield f"{text.kind}: {words(first)} words in its first sentence: {first[:60]}..."


def findings_of_python(path: str, source: str) -> Iterator[Finding]:
    nodes = nodes_of(source)
    for text in texts_of_python(source, nodes):
        for what in findings_of_text(text):
            yield Finding(path, text.line, what)
    for line, name in identifiers(nodes):
        parts = {part.lower() for part in WORD_PARTS.findall(IN_DOUBT.sub("", name))}
        if (path, name) in PUBLIC_IDENTIFIERS:
            continue
        for word in sorted(parts & BANNED_IDENTIFIERS):
            yield Finding(path, line, f"identifier {name}: '{word}' is not a term of the glossary")


def findings_of_document(path: str, source: str) -> Iterator[Finding]:
    """Paragraphs of a Markdown file, without code blocks."""
    plain = CODE_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), source)
    line = 1
    for block in re.split(r"(\n\s*\n)", plain):
        if block.strip():
            for what in findings_of_text(Text("document", line, block)):
                yield Finding(path, line, what)
        line += block.count("\n")


def findings_of_transcript(path: str, source: str) -> Iterator[Finding]:
    """Comments of a golden transcript. Consecutive lines are one text; `#n` begins a line of output."""
    lines = enumerate(source.splitlines(), 1)
    for is_comment, group in itertools.groupby(lines, lambda line: line[1].startswith("# ")):
        if is_comment:
            numbered = list(group)
            text = " ".join(line.removeprefix("# ") for _, line in numbered)
            for what in findings_of_text(Text("transcript", numbered[0][0], text)):
                yield Finding(path, numbered[0][0], what)


CHECKS: Final = {"py": findings_of_python, "txt": findings_of_transcript}
CHECKED: Final = ("*.py", "*.md", "tests/scenarios/*.txt")
"""Patterns of the files with checked text."""


def findings(paths: Sequence[str]) -> list[Finding]:
    found: set[Finding] = set()
    for path in paths:
        if path in SELF:
            continue
        source = (ROOT / path).read_text(encoding="utf-8")
        check = CHECKS.get(path.rpartition(".")[2], findings_of_document)
        found.update(check(path, source))
    return sorted(found)


def main(arguments: Sequence[str]) -> int:
    names = tracked(*CHECKED)
    wanted = tuple(arguments)
    chosen = [name for name in names if not wanted or name.startswith(wanted)]
    found = findings(chosen)
    for finding in found:
        print(finding)
    print(f"{len(found)} findings in {len({finding.path for finding in found})} of {len(chosen)} files")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
