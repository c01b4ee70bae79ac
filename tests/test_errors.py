import re
from pathlib import Path

import pytest

from sonosco_like.data.workers import worker_errors_as_data_errors
from sonosco_like.errors import DataError, as_sentence, message_of

PACKAGE = Path(__file__).parents[1] / "sonosco_like"
ENDED_TWICE = re.compile(r"\{(str\()?(error|exc)[^{}]*\}\.[\s\"]")


@pytest.mark.parametrize("message", ["It is gone", "It is gone.", "Is it gone?", "It is gone!", "It is gone: ..."])
def test_a_message_that_is_put_into_another_one_ends_with_one_mark(message):
    assert as_sentence(message) == (message + "." if message == "It is gone" else message)


def test_an_error_of_another_package_begins_with_its_class():
    assert message_of(KeyError("a")) == "KeyError: 'a'"
    assert message_of(DataError("a.wav is empty.")) == "a.wav is empty."


def test_the_question_of_a_failed_loader_worker_keeps_its_mark_only():
    said = r"died: DataLoader worker 7 is gone; was it killed\? Most often"
    with pytest.raises(DataError, match=said), worker_errors_as_data_errors():
        raise RuntimeError("DataLoader worker 7 is gone; was it killed?")


def test_no_message_puts_a_full_stop_behind_the_message_of_an_error():
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in path.read_text().splitlines()
        if ENDED_TWICE.search(line) and not re.search(r"error\.(strerror|name)", line)
    ]
    assert not found, "write as_sentence(error) without a full stop behind it"
