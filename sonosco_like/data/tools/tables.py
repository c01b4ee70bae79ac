"""Statistics as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich import box
from rich.table import Table

from sonosco_like.data.tools.stats import Statistics

_BAR = 30


def statistics_tables(statistics: Statistics, title: str, most_suspicious: int) -> Iterator[Table]:
    """Numbers, lengths, characters and suspicious rows; tables without rows are left out."""
    yield _numbers(statistics, title)
    yield _lengths(statistics)
    if statistics.not_in_alphabet:
        yield _characters("characters not in the alphabet", statistics.not_in_alphabet)
    if statistics.dropped_by_cleaning:
        yield _characters("characters that cleaning drops", statistics.dropped_by_cleaning)
    if statistics.suspicious:
        yield _suspicious(statistics, most_suspicious)


def _numbers(statistics: Statistics, title: str) -> Table:
    table = _table(title, "", "")
    speakers = f"{statistics.speakers:,}"
    if statistics.without_speaker:
        speakers += f" ({statistics.without_speaker:,} utterances without one)"
    for name, value in (
        ("utterances", f"{statistics.rows:,}"),
        ("hours", f"{statistics.seconds / 3600:.2f}"),
        ("speakers", speakers),
        ("words", f"{statistics.words:,}, {statistics.different_words:,} different"),
        ("different texts", f"{statistics.different_texts:,}"),
        ("seconds", f"{statistics.shortest:.2f} to {statistics.longest:.2f}, median {statistics.median:.2f}"),
        ("recordings", _recordings(statistics)),
        ("suspicious rows", f"{len({suspicion.row for suspicion in statistics.suspicious}):,}"),
    ):
        table.add_row(name, value)
    return table


def _recordings(statistics: Statistics) -> str:
    rates = ", ".join(f"{count:,} of {rate:,} Hz" for rate, count in statistics.sample_rates.items())
    decoded = f"{statistics.decoded:,} decoded" if statistics.decoded else "none decoded"
    return f"{statistics.recordings:,}, {decoded}" + (f"; {rates}" if rates else "")


def _lengths(statistics: Statistics) -> Table:
    table = _table("lengths", "seconds", "utterances", "minutes", "")
    highest = max((each.rows for each in statistics.histogram), default=0)
    for each in statistics.histogram:
        bar = "#" * round(_BAR * each.rows / highest)
        table.add_row(f"{each.start:g} to {each.end:g}", f"{each.rows:,}", f"{each.seconds / 60:.1f}", bar)
    return table


def _characters(title: str, counts: Mapping[str, int]) -> Table:
    table = _table(title, "character", "code", "times")
    for character, count in counts.items():
        table.add_row(repr(character), f"U+{ord(character):04X}", f"{count:,}")
    return table


def _suspicious(statistics: Statistics, most: int) -> Table:
    count = len(statistics.suspicious)
    title = "suspicious rows" if count <= most else f"suspicious rows ({most} of {count:,}; --json lists all)"
    table = _table(title, "row", "id", "reason", "detail")
    for suspicion in statistics.suspicious[:most]:
        table.add_row(str(suspicion.row), suspicion.id, suspicion.reason, suspicion.detail)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE, show_header=any(columns))
    for column in table.columns:
        column.overflow = "fold"
    return table
