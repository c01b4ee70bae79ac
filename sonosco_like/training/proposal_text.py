"""A first config as YAML: short, commented, and valid by itself."""

from __future__ import annotations

import json
from shlex import quote

from sonosco_like.serialization import quote_text
from sonosco_like.training.proposal import ModelName, Proposal, Size, show_seconds

_CONVOLUTIONS = """\
      convolutions:
      - {channels: %d, time_kernel: 7, frequency_kernel: 11, time_stride: 2}
      - {channels: 32, time_kernel: 5, frequency_kernel: 5, time_stride: 2}
"""
_DEEPSPEECH2 = """\
    class: DeepSpeech2
    encoder:
      cell: lstm
      hidden_size: %d
      layers: %d
      dropout: %g
""" + _CONVOLUTIONS  # fmt: skip
_CONFORMER = """\
    class: Conformer
    ctc: true
    attention_decoder: null
    encoder: {size: %d, layers: %d, heads: 4, kernel: %d, channels: %d, dropout: %g}
"""
_LAS = """\
    class: Recogniser
    ctc: true
    encoder:
      class: DeepSpeech2Encoder
      cell: lstm
      hidden_size: %d
      layers: %d
      dropout: 0.2
""" + _CONVOLUTIONS + """\
    attention_decoder:
      class: Speller
      hidden_size: %d
      layers: 1
      embedding_size: %d
      dropout: 0.2
      attention: {kind: location, size: %d, frames_per_label: %.1f}
"""  # fmt: skip
_TDS = """\
    class: TDS
    ctc: true
    attention_decoder: null
    encoder:
      norm_over: frame
      dropout: %g
      groups:
"""
_GROUP = "      - {channels: %d, blocks: %d, kernel: %d, stride: %d}\n"
_GROUPS: dict[Size, list[tuple[int, int, int, int]]] = {
    "small": [(10, 1, 9, 2), (14, 3, 9, 2)],
    "medium": [(10, 2, 15, 2), (14, 6, 15, 2)],
    "large": [(10, 2, 21, 2), (14, 9, 21, 2)],
}
_CTC = "  loss: {class: CTCLoss, too_long: skip}\n  decoder: {class: GreedyCTCDecoder}\n"
_JOINT = """\
  loss: {class: JointLoss, ctc_weight: 0.4, ctc: {too_long: skip}, attention: {label_smoothing: 0.1}}
  decoder: {class: AttentionBeamDecoder, beam_size: 4, ctc_weight: 0.3}
"""
_EPOCHS_FOR_ORDER = 4
_CHANGE_FIRST = {  # the lines that make a model larger
    "conformer": "`layers` and `size`",
    "deepspeech2": "`layers` and `hidden_size`",
    "las": "`layers` and `hidden_size` of the encoder",
    "tds": "`blocks` and `channels`",
}


def write_proposal(proposal: Proposal) -> str:
    """The YAML text of a proposal."""
    return "".join((_head(proposal), _trainer(proposal), _training_data(proposal), _rest(proposal)))


def _model(proposal: Proposal) -> str:
    name, size = proposal.model, proposal.size
    sizes = {"small": 0, "medium": 1, "large": 2}
    row = sizes[size]
    if name == "deepspeech2":
        return _DEEPSPEECH2 % ((192, 3, 0.1, 16), (512, 4, 0.2, 32), (800, 5, 0.2, 32))[row]
    if name == "conformer":
        return _CONFORMER % ((144, 4, 15, 32, 0.0), (144, 16, 31, 144, 0.1), (256, 16, 31, 256, 0.1))[row]
    if name == "las":
        per_label = 12.0 if proposal.pieces else 4.0
        encoder = ((128, 2, 16), (384, 4, 32), (512, 5, 32))[row]
        return _LAS % (*encoder, *((128, 64, 64), (384, 128, 128), (512, 256, 128))[row], per_label)
    return _TDS % (0.0, 0.1, 0.1)[row] + "".join(_GROUP % group for group in _GROUPS[size])


def model_names() -> tuple[ModelName, ...]:
    """The models that a first config can have."""
    return "conformer", "deepspeech2", "las", "tds"


def _head(proposal: Proposal) -> str:
    config, run = (quote(str(proposal.folder / name)) for name in ("config.yaml", "run"))
    longer = "`epochs` and `max_duration`" if proposal.batches else "`epochs`"
    purpose = f"{proposal.survey.train.hours:.2g} h of speech and {proposal.minutes:g} minutes on {proposal.machine}"
    return f"""\
# Written by `sonosco init` for {purpose}.
#   sonosco check --config {config}
#   sonosco train --config {config} --run-dir {run}
# What to change first:
# 1. {longer}: more, if val_word_error_rate still falls at the end.
# 2. `lr`: half of it if the loss jumps or does not fall, twice if it falls slowly.
# 3. {_CHANGE_FIRST[proposal.model]}: a larger model, for more data and more time.
class: Experiment
name: {quote_text(proposal.name)}
seed: 1234
"""


def _trainer(proposal: Proposal) -> str:
    epochs = f"  epochs: {proposal.epochs}  # one takes about {show_seconds(proposal.epoch_seconds)} here\n"
    if proposal.batches:
        epochs += f"  max_duration: {proposal.batches}ba  # the time is too short for more whole epochs\n"
    spaces = "" if proposal.survey.writing.has_spaces else "  # no spaces between words: watch the second one"
    return f"""\
trainer:
  class: ModelTrainer
{epochs}  test_step: {_interval(proposal)}  # from one validation to the next
  clip_grads: 5.0
{_precision(proposal)}  model:
{_model(proposal)}{_JOINT if proposal.model == "las" else _CTC}\
  metrics: [word_error_rate, character_error_rate]{spaces}
  optimizer: {{class: AdamW, lr: {proposal.learning_rate:g}}}
  scheduler: {{class: WarmupHoldDecay, warmup: 0.1dur, hold: 0.5dur, total: 1dur}}  # shares of the whole training
"""


def _interval(proposal: Proposal) -> str:
    """From one validation, and one checkpoint, to the next."""
    return f"{proposal.validate_every}{'ba' if proposal.batches else 'ep'}"


def _precision(proposal: Proposal) -> str:
    return "  precision: bfloat16\n" if proposal.machine.gpu else ""


def _training_data(proposal: Proposal) -> str:
    survey = proposal.survey
    cleaner = survey.writing.cleaner
    rate = "" if survey.sample_rate == 16_000 else f", sample_rate: {survey.sample_rate}"
    missing = ", missing: unknown" if survey.new_characters else ""
    if proposal.pieces:
        model = quote_text(str(proposal.pieces_file))
        tokenizer = f"&labels\n        class: SentencePieceTokenizer\n        model: {model}"
    else:
        characters = json.dumps(survey.writing.alphabet, ensure_ascii=False)
        tokenizer = f"&labels {{class: Alphabet, characters: {characters}{missing}}}"
    replaced = {old: new for old, new in cleaner.replacements.items() if old in ("’", "i̇")}
    replacements = "" if len(replaced) < 2 else f", replacements: {json.dumps(replaced, ensure_ascii=False)}"
    batch = proposal.reasons["batch"].partition(", ")[2]
    # from short to long is an easy beginning, and a wrong diet if it is most of the training
    in_order = ", sorted_first_epoch: true" if proposal.epochs >= _EPOCHS_FOR_ORDER else ""
    return f"""\
  train_data_loader:
    class: AudioDataLoader
    num_workers: {proposal.workers}
    sampler: {{batch_seconds: {proposal.batch_seconds}{in_order}}}  # {batch}
    dataset:
      manifest: {quote_text(str(survey.train.path))}
      features: &features {{class: LogMel, mels: {proposal.mels}, high_frequency: -400{rate}}}
      cleaner: &cleaner {{normal_form: {cleaner.normal_form}, case: {cleaner.case}{replacements}}}
      tokenizer: {tokenizer}
{_limits(proposal)}{_augmentation(proposal)}"""


def _limits(proposal: Proposal) -> str:
    lines = f"      max_duration: {proposal.longest:g}\n" if proposal.longest else ""
    return lines + ("      on_bad: skip  # rows that cannot be used\n" if proposal.skips_rows else "")


def _augmentation(proposal: Proposal) -> str:
    """Few speakers need more speeds, many hours allow wider masks."""
    if proposal.size == "small":
        factors, masks = "[0.8, 0.9, 1.0, 1.1, 1.2]", "frequency_width: 12, time_width: 20, time_share: 0.1"
    else:
        factors, masks = "[0.9, 1.0, 1.1]", "frequency_width: 27, time_width: 60, time_share: 0.1"
    repeats = (
        f"each recording is used {proposal.epochs} times, each time in another form"
        if proposal.epochs > 1
        else "of each recording"
    )
    return f"""\
      waveform_augmentations:  # {repeats}
      - {{class: SpeedPerturbation, factors: {factors}}}
      feature_augmentations:
      - {{class: SpecAugment, {masks}}}
"""


def _rest(proposal: Proposal) -> str:
    survey = proposal.survey
    measure = "val_word_error_rate" if survey.writing.has_spaces else "val_character_error_rate"
    limits = _limits(proposal)
    return f"""\
  val_data_loader:
    class: AudioDataLoader
    sampler: {{batch_seconds: {proposal.batch_seconds}, shuffle: false}}
    dataset:
      manifest: {quote_text(str(survey.val.path))}
      features: *features
      cleaner: *cleaner
      tokenizer: *labels
{limits}  callbacks:
  - {{class: ProgressBar}}
  - {{class: LogMeasures}}
  - {{class: MetricsFile}}
  - {{class: TensorBoardCallback}}
  - {{class: TranscriptDashboard}}
  - {{class: RunReport}}
  - {{class: ModelCheckpoint, every: {_interval(proposal)}, keep_last: 2, monitor: {measure}}}
"""
