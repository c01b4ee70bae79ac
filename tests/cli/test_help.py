"""Every command explains itself, and the shell completes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import Any

import click
import pytest
from command_lines import check_command

from sonosco_like import loads
from sonosco_like.cli import run, sonosco
from sonosco_like.decoding import AttentionBeamDecoder, CTCBeamDecoder, WordScores
from sonosco_like.inference.audio_stream import LONGEST, OVERLAP

EXAMPLE = re.compile(r"^ +(?:.*\| )?sonosco (.+)$", re.MULTILINE)


def commands(group: click.Group, *names: str) -> dict[str, click.Command]:
    """Every command by how it is typed, groups too."""
    found: dict[str, click.Command] = {" ".join(names): group}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        is_group = isinstance(command, click.Group)
        found |= commands(command, *names, name) if is_group else {" ".join((*names, name)): command}
    return found


COMMANDS = commands(sonosco)


def test_every_command_shows_examples_that_can_be_typed(capsys):
    for name in COMMANDS:
        assert run([*name.split(), "--help"]) == 0, name
        shown = capsys.readouterr().out.partition("Example")[2]
        examples = [re.split(r" {2,}| [>|]", line)[0] for line in EXAMPLE.findall(shown)]
        assert examples, f"`sonosco {name} --help` shows no example."
        for line in examples:
            check_command(line)


def test_every_option_of_every_command_is_explained():
    options = [(name, each) for name in COMMANDS for each in COMMANDS[name].params if isinstance(each, click.Option)]
    assert [(name, each.name) for name, each in options if not each.help] == []


def test_the_purpose_of_no_command_is_cut_off_in_the_list_of_all():
    shown = {name: COMMANDS[name].get_short_help_str(limit=60) for name in COMMANDS if name}
    assert {name: text for name, text in shown.items() if text.endswith("...") or not text} == {}


def help_of(command, option):
    (found,) = [each for each in COMMANDS[command].params if option in each.opts]
    return found.help


def test_the_options_of_decoders_tell_their_true_defaults():
    words, ctc, attention = WordScores(), CTCBeamDecoder(), AttentionBeamDecoder()
    defaults = {
        "--lm-weight": words.weight,
        "--word-bonus": words.word_bonus,
        "--hot-word-bonus": words.hot_word_bonus,
        "--ctc-weight": attention.ctc_weight,
    }
    for command in ("evaluate", "transcribe"):
        assert f"{ctc.beam_size} for CTC, {attention.beam_size} for attention]" in help_of(command, "--beam")
        for option, default in defaults.items():
            assert help_of(command, option).endswith(f"[default: that of the run's decoder, else {default:g}]")


def test_the_lengths_of_pieces_tell_their_true_defaults():
    longest = f"[default: the `max_duration` of the training set, else {LONGEST:g}]"
    assert help_of("transcribe", "--longest").endswith(longest)
    overlap = f"[default: {OVERLAP:g}, but at most a third of a piece]"
    assert help_of("transcribe", "--overlap").endswith(overlap)


def test_set_says_how_it_is_repeated_what_values_are_and_how_a_list_is_reached():
    text = "trainer: {epochs: 1, callbacks: [{class: ProgressBar}, {class: LogMeasures}, {class: EarlyStopping}]}"
    for command in ("train", "resume", "check", "verify-resume"):
        (option,) = [each for each in COMMANDS[command].params if "--set" in each.opts]
        assert option.multiple == ("can be given several times" in option.help)
        shown = re.findall(r"--set '?([^', ]+)", option.help)
        assert len(shown) == 2
        changed = loads(text, dict[str, Any], overrides=shown)["trainer"]
        assert (changed["epochs"], changed["callbacks"][2].patience) == (3, 5), "the examples do what they say"


def test_only_corpora_that_can_be_downloaded_offer_it():
    for name in ("an4", "librispeech", "tedlium", "voxforge"):
        assert help_of(f"data {name}", "--source").endswith("the corpus is downloaded if not given.")
    assert "nothing is downloaded" in help_of("data common-voice", "--source")


@pytest.fixture
def with_sonosco(tmp_path):
    """The environment of a shell that finds `sonosco`, and starts as for a new user."""
    program = tmp_path / "bin" / "sonosco"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sonosco_like "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}


@pytest.fixture
def bash(with_sonosco):
    """Have a real bash complete a line, as it does when Tab is pressed after the last word."""
    script = """
        eval "$(sonosco completion bash)"
        [[ "$(complete -p sonosco)" =~ -F\\ ([^ ]+) ]]
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        "${BASH_REMATCH[1]}" sonosco
        printf '%s\\n' "${COMPREPLY[@]}"
    """

    def complete(*words: str) -> list[str]:
        command = ["bash", "--norc", "-c", script, "bash", "sonosco", *words]
        done = subprocess.run(command, env=with_sonosco, capture_output=True, text=True, timeout=600, check=False)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return complete


def test_a_real_bash_completes_commands_options_and_choices(bash):
    assert bash("tra") == ["train", "transcribe"]
    assert bash("data", "sy") == ["synth"]
    assert bash("train", "--con") == ["--config"]
    assert bash("train", "--resume", "") == ["never", "auto", "must"]


@pytest.mark.parametrize(
    ("shell", "script", "expected"),
    [
        ("zsh", 'eval "$(sonosco completion zsh)"; print $_comps[sonosco]', "_sonosco_completion\n"),
        (
            "fish",
            "sonosco completion fish | source; complete -C 'sonosco tra'",
            "train\tTrain a recogniser.\ntranscribe\tWrite down what is said in recordings.\n",
        ),
    ],
)
def test_other_shells_take_their_script_as_a_new_user_has_them(shell, script, expected, with_sonosco):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    done = subprocess.run([shell, "-c", script], env=with_sonosco, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (expected, "")


def test_other_shells_have_their_script_too(capsys):
    for shell, word in (("zsh", "compdef"), ("fish", "complete --no-files")):
        assert run(["completion", shell]) == 0
        assert word in capsys.readouterr().out


def test_a_shell_that_is_not_known_is_refused(capsys):
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
