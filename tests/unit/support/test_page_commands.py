from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.page_commands import PageRun, blocks, missing_lines, missing_packages

if TYPE_CHECKING:
    from pathlib import Path

PORTS = [30_000, 30_001, 30_002, 30_003, 30_004, 30_005]


def test_blocks_of_a_page_run_in_one_directory_in_their_order(tmp_path: Path) -> None:
    page = (
        '```properties title="a/b.txt"\nx\n```\n\n```sh\ncat a/b.txt\n```\n\n```text\nx\n```\n\n```python\n1 + 1\n```\n'
    )
    assert PageRun(tmp_path, PORTS).run(page) == 2


@pytest.mark.parametrize("page", ["```sh\nfalse\ntrue\n```\n", "```sh\nfalse | cat\n```\n", "```python\n1 / 0\n```\n"])
def test_failed_command_of_a_page_fails_the_run(tmp_path: Path, page: str) -> None:
    with pytest.raises(AssertionError):
        PageRun(tmp_path, PORTS).run(page)


def test_output_that_differs_from_the_page_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="did not print"):
        PageRun(tmp_path, PORTS).run("```sh\necho one\n```\n\n```text\ntwo\n```\n")


def test_ellipsis_of_an_output_stands_for_any_characters() -> None:
    assert missing_lines("0@... alice 42\n", "0@7\t2026-01-01 00:00\talice\t42\n") == []
    assert missing_lines("0@... alice 43\n", "0@7\t2026-01-01 00:00\talice\t42\n") == ["0@... alice 43"]


def test_ports_of_a_page_become_free_ports(tmp_path: Path) -> None:
    run = PageRun(tmp_path, PORTS)
    assert run.localized("odradek up --detach\nodradek status --bootstrap 127.0.0.1:9094\n") == (
        "odradek up --port 30000 --detach\nodradek status --bootstrap 127.0.0.1:30002\n"
    )
    assert run.localized("odradek up --dir b --port 9095\n") == "odradek up --dir b --port 30003\n"
    assert run.localized("127.0.0.1:10093, 11092, 29092\n") == "127.0.0.1:31001, 32000, 29092\n"


def test_installation_of_an_unknown_extra_fails_the_run(tmp_path: Path) -> None:
    run = PageRun(tmp_path, PORTS)
    assert run.localized("pip install 'odradek[test]'  # reason\necho\n") == "echo\n"
    with pytest.raises(AssertionError, match="odradek\\[no\\]"):
        run.localized("pip install 'odradek[no]'\n")


@pytest.mark.parametrize(
    ("installation", "missing"),
    [
        ("pip install .", {"confluent_kafka", "pytest"}),
        ("pip install '.[test]'", {"confluent_kafka"}),
        ("pip install 'odradek[test]' confluent-kafka   # reason", set()),
        ("pip install confluent-kafka", {"pytest"}),
        ("echo", {"confluent_kafka", "pytest"}),
    ],
)
def test_imports_of_a_page_need_an_installation(installation: str, missing: set[str]) -> None:
    program = "import json\n\nimport pytest\nfrom confluent_kafka import Producer\nfrom odradek.testing import Kafka\n"
    page = f'```sh\n{installation}\n```\n\n```python title="orders.py"\n{program}```\n'
    page += "```python\nfrom orders import Kafka\n```\n"
    assert missing_packages(page) == missing


def test_blocks_have_language_title_and_text() -> None:
    [block] = blocks('before\n```yaml title="rules.yml"\na: 1\n```\nafter\n')
    assert (block.language, block.title, block.text) == ("yaml", "rules.yml", "a: 1\n")
