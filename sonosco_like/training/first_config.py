"""`write_first_config`: from two manifests to a config that fits them and this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote

from sonosco_like.data.tools.files import check_writable
from sonosco_like.data.tools.pieces import learn_pieces
from sonosco_like.data.tools.survey import concerns, survey_data
from sonosco_like.errors import UsageError
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import SPECIAL_SYMBOLS
from sonosco_like.serialization import Document, replace_file
from sonosco_like.training.experiment import build_experiment
from sonosco_like.training.proposal import (
    Labels,
    ModelName,
    Proposal,
    fit_to_time,
    look_at_machine,
    next_smaller,
    propose,
)
from sonosco_like.training.proposal_text import write_proposal
from sonosco_like.training.trial import TrialTimes, time_training

_TRIAL_SECONDS = (2.0, 10.0)


def write_first_config(
    folder: Path,
    train: Path,
    val: Path,
    minutes: float = 30.0,
    model: ModelName | None = None,
    labels: Labels = "auto",
    progress: Progress = no_progress,
) -> tuple[Proposal, list[str]]:
    """Write `config.yaml`, and `pieces.model` if there are word pieces, into a folder; neither may exist.

    Returns the choices, and sentences about what may be wrong with the data.
    """
    config = folder / "config.yaml"
    for path in (config, folder / "pieces.model"):
        if path.exists():
            raise UsageError(
                f"{path} exists, and nothing is overwritten. Choose another folder, or remove it: rm {quote(str(path))}"
            )
        check_writable(path)
    survey = survey_data(train, val, progress)
    proposal = propose(folder, survey, look_at_machine(), minutes, model, labels)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        proposal = _fit(_learn_pieces(proposal, progress), progress)
        replace_file(config, write_proposal(proposal).encode())
    except BaseException:  # Ctrl-C too: the next call must not meet a half of the files
        proposal.pieces_file.unlink(missing_ok=True)
        raise
    return proposal, list(concerns(survey))


def _learn_pieces(proposal: Proposal, progress: Progress) -> Proposal:
    """Learn the word pieces, fewer if the texts have not as many; characters if they have hardly any."""
    size, writing = proposal.pieces, proposal.survey.writing
    while size and size > len(writing.characters) + len(SPECIAL_SYMBOLS):
        with suppress(UsageError):  # more than there are
            found = learn_pieces(
                [proposal.survey.train.path], proposal.pieces_file, size, "bpe", writing.cleaner, progress=progress
            )
            why = proposal.reasons["labels"].partition(": ")[2]
            return replace(proposal, pieces=found.size).explain(labels=f"{found.size} word pieces: {why}")
        size = size * 2 // 3
    if proposal.pieces:
        count = len(writing.characters)
        proposal = proposal.explain(labels=f"{count} characters: the texts are too few for word pieces")
    return replace(proposal, pieces=None)


def _fit(proposal: Proposal, progress: Progress) -> Proposal:
    while True:
        with progress("training a few batches to see how long they take", None, "batches") as advance:
            times = _time(proposal)
            advance(times.batches)
        smaller = next_smaller(proposal, times)
        if smaller is None:
            return fit_to_time(proposal, times)
        proposal = smaller


def _time(proposal: Proposal) -> TrialTimes:
    document = Document.parse(write_proposal(proposal), "the first config")
    shortest, longest = _TRIAL_SECONDS
    seconds = min(max(proposal.minutes, shortest), longest)  # one for each minute
    return time_training(build_experiment(document).trainer, seconds)
