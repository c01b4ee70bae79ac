"""`sonosco weights`: what a folder of foreign weights holds, and which of our encoders it fits."""

from __future__ import annotations

import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.options import PATH
from sonosco_like.errors import list_some

if TYPE_CHECKING:
    from sonosco_like.models.pretrained import ForeignWeights

_MOST_LISTED, _MOST_SYMBOLS = 6, 40


@click.command()
@click.argument("folder", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, with all names of tensors.")
def weights(folder: Path, as_json: bool) -> None:
    """Show what foreign weights hold and which encoder they fit.

    FOLDER is a folder as the Hugging Face hub has it: `config.json` and `model.safetensors`, in one file or in shards.
    The last lines are for your config: the encoder and its features. Nothing in the folder is executed; weights that
    are pickled (`pytorch_model.bin`, `.pt`, `.nemo`) are not opened. The exit code is 2 if no encoder fits.

    \b
    Examples:
      sonosco weights wav2vec2-base
      sonosco weights whisper-tiny --json
    """
    from sonosco_like.models.pretrained import read_weights

    found = read_weights(folder)
    click.echo(json.dumps(_as_json(found), indent=2, ensure_ascii=False) if as_json else "\n".join(_lines(found)))


def _lines(found: ForeignWeights) -> list[str]:
    from sonosco_like.training.pretrained import encoder_line, features_line

    facts = _as_json(found)
    kinds = ", ".join(facts["architectures"])
    files = [f"{each['name']}, {each['bytes'] / 1e6:,.1f} MB" for each in facts["files"]]
    types = ", ".join(f"{count} {dtype}" for dtype, count in facts["dtypes"].items())
    rows = [
        ("folder", str(found.folder.path)),
        ("family", found.family + (f" ({kinds})" if kinds else "")),
        ("licence", facts["licence"] or "not named in config.json or README.md"),
        ("files", list_some(files, _MOST_LISTED)),
        ("tensors", f"{facts['tensors']} ({types})"),
        ("encoder", f"{len(found.names)} tensors, {facts['parameters']:,} parameters"),
        ("output layer", _output(facts)),
        ("not used", f"{len(found.unused)}: {list_some(found.unused, _MOST_LISTED)}" if found.unused else "nothing"),
    ]
    return [
        *(f"{name:<13} {value}" for name, value in rows),
        "",
        "In a config:",
        "",
        f"init_from: {found.folder.path}",
        "trainer:",
        "  model:",
        "    class: Recogniser",
        f"    encoder: {encoder_line(found)}",
        "  train_data_loader:",
        "    dataset:",
        f"      features: &features {features_line(found)}",
        "      normalization: null",
        "  val_data_loader:",
        "    dataset: {features: *features, normalization: null}",
    ]


def _output(facts: dict[str, Any]) -> str:
    symbols = facts["symbols"]
    if facts["output_rows"] is None:
        return "none over characters"
    if symbols is None:
        return f"{facts['output_rows']} rows, without a vocab.json that names their characters, so it is not used"
    shown = list_some([repr(each) for each in symbols], _MOST_SYMBOLS, " ")
    return f"{facts['output_rows']} characters, kept as far as your alphabet has them: {shown}"


def _as_json(found: ForeignWeights) -> dict[str, Any]:
    from sonosco_like.training.pretrained import features_fields

    folder, output = found.folder, found.output
    named = folder.config.get("architectures")
    return {
        "folder": str(folder.path),
        "family": found.family,
        "architectures": [str(each) for each in named] if isinstance(named, list) else [],
        "licence": folder.licence,
        "files": [{"name": each.name, "bytes": each.stat().st_size} for each in folder.files],
        "tensors": len(folder.names),
        "dtypes": dict(Counter(folder.dtype(name) for name in folder.names)),
        "parameters": sum(prod(folder.shape(name)) for name in found.names.values()),
        "encoder": found.encoder_fields,
        "features": features_fields(found),
        "names": found.names,
        "unused": list(found.unused),
        "output_rows": None if output is None else folder.shape(output.names["weight"])[0],
        "symbols": None if output is None else output.symbols,
    }
