"""Every command explains itself, and the shell completes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import click
import pytest
from command_lines import check_command

from sonosco_like.cli import run, sonosco
from sonosco_like.decoding import AttentionBeamDecoder, CTCBeamDecoder, WordScores
from sonosco_like.inference.cutting import LONGEST, OVERLAP

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


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_purpose_runnable_examples_and_words_for_every_option(name, capsys):
    assert run([*name.split(), "--help"]) == 0
    said = capsys.readouterr().out
    examples = [re.split(r" {2,}| [>|]", line)[0] for line in EXAMPLE.findall(said.partition("Example")[2])]
    assert examples
    for line in examples:
        check_command(line)
    options = [each for each in COMMANDS[name].params if isinstance(each, click.Option)]
    assert [each.name for each in options if not each.help] == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name])
def test_the_purpose_of_a_command_is_not_cut_off_in_the_list_of_all(name):
    assert not COMMANDS[name].get_short_help_str(limit=60).endswith("...")


def help_of(command, option):
    (found,) = [each for each in COMMANDS[command].params if option in each.opts]
    return found.help


@pytest.mark.parametrize("command", ["evaluate", "transcribe"])
def test_the_options_of_decoders_tell_their_true_defaults(command):
    words, ctc, attention = WordScores(), CTCBeamDecoder(), AttentionBeamDecoder()
    assert f"{ctc.beam_size} for CTC, {attention.beam_size} for attention]" in help_of(command, "--beam")
    for option, default in {
        "--lm-weight": words.weight,
        "--word-bonus": words.word_bonus,
        "--hot-word-bonus": words.hot_word_bonus,
        "--ctc-weight": attention.ctc_weight,
    }.items():
        assert help_of(command, option).endswith(f"[default: that of the run's decoder, else {default:g}]")


def test_the_lengths_of_pieces_tell_their_true_defaults():
    longest = f"[default: the `max_duration` of the training set, else {LONGEST:g}]"
    assert help_of("transcribe", "--longest").endswith(longest)
    overlap = f"[default: {OVERLAP:g}, but at most a third of a piece]"
    assert help_of("transcribe", "--overlap").endswith(overlap)


@pytest.mark.parametrize("command", ["train", "resume", "check", "verify-resume"])
def test_set_says_how_it_is_repeated_what_values_are_and_how_a_list_is_reached(command):
    said = help_of(command, "--set")
    assert "can be given several times" in said
    assert "YAML" in said
    assert "trainer.callbacks[2].patience=5" in said


def test_only_corpora_that_can_be_downloaded_offer_it():
    for name in ("an4", "librispeech", "tedlium", "voxforge"):
        assert help_of(f"data {name}", "--source").endswith("else it is downloaded.")
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tra"], ["train", "transcribe"]),
        (["data", "sy"], ["synth"]),
        (["train", "--con"], ["--config"]),
        (["train", "--resume", ""], ["never", "auto", "must"]),
    ],
)
def test_a_real_bash_completes_commands_options_and_choices(bash, words, expected):
    assert bash(*words) == expected


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


@pytest.mark.parametrize(("shell", "word"), [("zsh", "compdef"), ("fish", "complete --no-files")])
def test_other_shells_have_their_script_too(shell, word, capsys):
    assert run(["completion", shell]) == 0
    assert word in capsys.readouterr().out


def test_a_shell_that_is_not_known_is_refused(capsys):
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
