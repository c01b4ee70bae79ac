"""`sonosco export`: a trained recogniser as a folder for use without this package, verified to give the same texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.options import PATH, force, import_modules, imports

if TYPE_CHECKING:
    from sonosco_like.export import Exported

_DONE, _DISAGREES = 0, 1


@click.command()
@click.argument("run", metavar="RUN_OR_CHECKPOINT", type=PATH)
@click.option(
    "--format",
    "form",
    type=click.Choice(["onnx", "sherpa", "torch-export"]),
    default="onnx",
    show_default=True,
    help="onnx: graphs and transcribe.py for onnxruntime; sherpa: model.onnx and tokens.txt for sherpa-onnx; "
    "torch-export: model.pt2 for torch without this package.",
)
@click.option("--output", type=PATH, required=True, help="The folder to write; it must not exist yet.")
@click.option("--int8", is_flag=True, help="Also write graphs with weights of 8 bits, and say what they cost.")
@click.option(
    "--verify",
    "manifest",
    type=PATH,
    help="The utterances on which recogniser and export must give the same texts.  [default: the validation manifest "
    "of the run, if it is there]",
)
@click.option("--no-verify", "unverified", is_flag=True, help="Do not compare texts.")
@click.option("--opset", type=int, default=17, show_default=True, help="The version of the operators of ONNX.")
@click.option(
    "--input",
    "takes",
    type=click.Choice(["waveform", "features"]),
    default="waveform",
    show_default=True,
    help="What the graphs of onnx and torch-export take; with waveform the features are a part of the graph.",
)
@click.option(
    "--decode",
    type=click.Choice(["ctc", "attention"]),
    help="The output to export, if the model has both; that of the run's own decoder if not given.",
)
@force
@imports
def export(
    run: Path,
    form: str,
    output: Path,
    manifest: Path | None,
    unverified: bool,
    force: bool,
    modules: tuple[str, ...],
    **options: Any,
) -> int:
    """Export a trained recogniser.

    The folder can be used on a machine without this package. Every utterance of a manifest is transcribed by the
    recogniser and by the exported files, and the texts are compared. If one differs, the exit code is 1, and the
    command says which part is the cause. Weights of 8 bits may cost errors; the command says how many.

    \b
    Examples:
      sonosco export runs/digits --output digits-onnx
      sonosco export runs/digits --format sherpa --output digits-sherpa --int8
      sonosco export runs/digits --format torch-export --output digits-pt2 --verify test.jsonl
      sonosco export runs/las --decode ctc --output las-ctc --force
    """
    import_modules(modules)
    from sonosco_like.export import export as write
    from sonosco_like.progress import show_progress

    exported = write(
        run,
        output,
        form,  # type: ignore[arg-type]
        verify=manifest if manifest is not None else not unverified,
        input=options["takes"],
        decode=options["decode"],
        int8=options["int8"],
        opset=options["opset"],
        overwrite=force,
        progress=show_progress,
    )
    return _report(exported, output)


def _report(exported: Exported, output: Path) -> int:
    for path in sorted(each for each in exported.folder.iterdir() if each.is_file()):
        click.echo(f"{output / path.name}  {path.stat().st_size / 1e6:.2f} MB")
    for note in exported.notes:
        click.echo(f"Note: {note}")
    for comparison in exported.comparisons:
        click.echo("\n".join(comparison.lines()))
    if exported.unreadable:
        click.echo(f"{exported.unreadable} rows of the manifest could not be read, and were not compared.", err=True)
    if exported.agrees:
        return _DONE
    click.echo("Error: the texts of the export differ from those of the recogniser; see verification.json.", err=True)
    return _DISAGREES
