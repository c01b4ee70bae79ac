"""Every row of a config's data that a training could not use, found before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote

from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.tools.examination import Opening, examine_recordings
from sonosco_like.data.tools.progress import Progress
from sonosco_like.errors import DataError

_MOST_LISTED = 20


def unusable_rows(dataset: AudioDataset, opening: Opening, progress: Progress) -> list[str]:
    """What is wrong with each utterance that the sampler may choose: its text has no labels, or its audio no sound."""
    chosen = dataset.utterances.select(dataset.usable)
    examined = examine_recordings(chosen, opening, progress)
    unlabelled = dict(_unlabelled(dataset))
    problems = []
    for index in range(len(chosen)):
        said = [f"{fault.reason}: {fault.detail}" for fault in examined.faults.get(index, ()) if not fault.usable]
        said += [unlabelled[index]] if index in unlabelled else []
        problems += [f"{dataset.manifest}, row {chosen.row(index)}: {what}" for what in said]
    return problems


def listed(problems: list[str], manifest: Path) -> list[str]:
    """As many of the problems as one wants to read, and how to see the others; the search itself has no limit."""
    if len(problems) <= _MOST_LISTED:
        return problems
    more = len(problems) - _MOST_LISTED
    return [
        *problems[:_MOST_LISTED],
        f"{more:,} more rows of {manifest} cannot be used. All: sonosco data stats {quote(str(manifest))} --json",
    ]


def _unlabelled(dataset: AudioDataset) -> Iterator[tuple[int, str]]:
    """Rows whose text has a part without label, with the reason. The dataset's own counts are left alone."""
    cleaner = replace(dataset.cleaner) if dataset.cleaner else None
    tokenizer = replace(dataset.tokenizer)
    for place, index in enumerate(dataset.usable.tolist()):
        text = dataset.utterances[index].text
        try:
            tokenizer.encode(cleaner(text) if cleaner else text)
        except DataError as error:
            yield place, str(error)
