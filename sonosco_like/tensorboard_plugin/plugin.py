"""The plugin that TensorBoard loads: its addresses and their answers."""

from __future__ import annotations

import base64
import functools
import json
import mimetypes
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard import errors, plugin_util
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import Request, Response

from sonosco_like.tensorboard_plugin.records import PLUGIN, UnreadableError
from sonosco_like.tensorboard_plugin.store import Record, Store, ValidationSet, modes_of
from sonosco_like.tensorboard_plugin.table import BadQueryError, Query, Table, confusions, lookup, whole_number

_STATIC = [Path(__file__).parent / "static", Path(__file__).parents[1] / "static"]  # ours, and those that rooms share
_MOST_CONFUSIONS = 50
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class TranscriptsPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """References beside hypotheses, of every run at every step."""

    plugin_name = PLUGIN

    def __init__(self, context: Any) -> None:
        self._provider = context.data_provider
        self._stores: dict[str, Store] = {}

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        """The addresses of everything that the dashboard loads."""
        answers = {
            "/runs": self._runs,
            "/rows": self._rows,
            "/curves": self._curves,
            "/confusions": self._confusions,
            "/sample": self._sample,
            "/audio": self._audio,
            "/transcripts.csv": self._csv,
        }
        apps = {path: _application(answer) for path, answer in answers.items()}
        return {**apps, "/static/*": _application(_static)}

    def is_active(self) -> bool:
        """False: TensorBoard itself checks whether a run has data of this plugin."""
        return False

    def frontend_metadata(self) -> Any:
        """The name of the tab and its script."""
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="Transcripts")

    def _runs(self, request: Request) -> Response:
        """All runs with their steps and error rates, unless the page knows them already."""
        store, context = self._store(request), plugin_util.context(request.environ)
        runs = {
            run: {name: _summary(found) for name, found in sets.items()} for run, sets in store.index(context).items()
        }
        mark = f"{zlib.crc32(json.dumps(runs).encode()):08x}"
        is_known = request.args.get("known") == mark
        return _json(request, {"mark": mark} if is_known else {"mark": mark, "runs": runs})

    def _rows(self, request: Request) -> Response:
        return _json(request, self._table(request).page())

    def _curves(self, request: Request) -> Response:
        return _json(request, self._table(request).curves())

    def _csv(self, request: Request) -> Response:
        headers = [("Content-Disposition", "attachment; filename=transcripts.csv")]
        return _respond(request, self._table(request).csv(), "text/csv", headers=headers)

    def _confusions(self, request: Request) -> Response:
        view = self._table(request).views[0]
        return _json(request, confusions(view.utterances.references, view.texts, _MOST_CONFUSIONS))

    def _sample(self, request: Request) -> Response:
        """The features of a sample, and the alignments of the last validation up to a step."""
        store, context, found = self._found(request)
        name = request.args.get("id", "")
        entry = lookup(store.samples(context, found.recordings), name, "sample")
        assert found.recordings is not None
        features = _picture(store, context, found.recordings, entry.get("features"))
        step = max((each for each in found.alignments if each <= whole_number(request.args, "step", 0)), default=None)
        aligned: Mapping[str, Any] = {}
        alignments = []
        if step is not None:
            record = found.alignments[step]
            aligned = store.samples(context, record).get(name, {})
            alignments = [_picture(store, context, record, each) for each in _list(aligned.get("alignments", []))]
        content = {"id": name, "step": step, "duration": entry.get("duration"), "features": features}
        return _json(request, {**content, "alignments": alignments, "words": aligned.get("words", [])})

    def _audio(self, request: Request) -> Response:
        """The recording of a sample; in parts if the browser asks for them, which it needs to seek."""
        store, context, found = self._found(request)
        entry = lookup(store.samples(context, found.recordings), request.args.get("id", ""), "sample")
        if found.recordings is None or "audio" not in entry:
            raise BadQueryError("This sample has no recording.")
        content = store.part(context, found.recordings, entry["audio"], packed=False)
        response = Response(content, mimetype="audio/wav", headers={"X-Content-Type-Options": "nosniff"})
        return response.make_conditional(request, accept_ranges=True, complete_length=len(content))

    def _table(self, request: Request) -> Table:
        return Table(self._store(request), plugin_util.context(request.environ), Query.parse(request.args))

    def _found(self, request: Request) -> tuple[Store, Any, ValidationSet]:
        store, context = self._store(request), plugin_util.context(request.environ)
        sets = lookup(store.index(context), request.args.get("run", ""), "run")
        return store, context, lookup(sets, request.args.get("set", ""), "validation set")

    def _store(self, request: Request) -> Store:
        experiment = plugin_util.experiment_id(request.environ)
        return self._stores.setdefault(experiment, Store(self._provider, experiment))


def _summary(found: ValidationSet) -> dict[str, Any]:
    steps = found.steps
    modes = sorted({mode for step in steps for mode in modes_of(found.hypotheses[step])})
    rates = {mode: [_rates(found.hypotheses[step], mode) for step in steps] for mode in modes}
    return {"steps": steps, "modes": modes, "rates": rates}


def _rates(record: Record, mode: str) -> Any:
    rates = record.header.get("rates")
    return rates.get(mode) if isinstance(rates, dict) else None


def _picture(store: Store, context: Any, record: Record, matrix: Any) -> dict[str, Any]:
    """The description of a picture with its pixels."""
    if not isinstance(matrix, dict):
        raise UnreadableError("A sample should have a picture here, but has none.")
    rows, columns = matrix.get("rows"), matrix.get("columns")
    content = store.part(context, record, matrix.get("part"))
    if not isinstance(rows, int) or not isinstance(columns, int) or len(content) != rows * columns:
        raise UnreadableError("The number of pixels of a picture is not rows times columns.")
    return {**matrix, "values": base64.b64encode(content).decode("ascii")}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnreadableError("There should be a list.")
    return value


def _static(request: Request) -> Response:
    """A file of the dashboard; only names of files in its folders are accepted."""
    name = request.path.rsplit("/", 1)[-1]
    files = {file.name: file for folder in _STATIC for file in folder.iterdir()}
    file = lookup(files, name, "file")
    kind = _TYPES.get(file.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return _respond(request, file.read_bytes(), kind)


def _application(answer: Callable[[Request], Response]) -> Callable[..., Any]:
    @functools.wraps(answer)
    def application(request: Request) -> Response:
        try:
            return answer(request)
        except BadQueryError as error:
            return _json(request, {"error": str(error)}, code=400)
        except (UnreadableError, errors.NotFoundError) as error:
            return _json(request, {"error": f"These records cannot be read. {error}"}, code=422)

    return Request.application(application)


def _json(request: Request, content: Any, code: int = 200) -> Response:
    return _respond(request, content, "application/json", code=code)


def _respond(request: Request, content: Any, kind: str, **options: Any) -> Response:
    response: Response = http_util.Respond(request, content, kind, **options)
    return response
