"""The manifest: the recordings, their lengths and their transcripts.

The rows are held in Arrow columns. Their buffers hold no Python objects, so forked loader workers keep sharing them:
reading a row changes no memory page.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sonosco_like.data.audio import audio_info
from sonosco_like.data.manifest_formats import MOST_PROBLEMS, SCHEMA, bad_rows_error, read_table
from sonosco_like.errors import DataError, SonoscoError, StorageError, as_sentence
from sonosco_like.records import Utterance

_SUFFIX = re.compile(r"\.[^./]*$")
_OWN_COLUMNS = frozenset(SCHEMA.names)
_MEASURED_AT_ONCE = 4096  # a million tasks that wait for a thread would take two gigabytes
_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
logger = logging.getLogger(__name__)


class Manifest:
    """Utterances by index: all rows of a file (`read`) or of several (`read_all`), or some of them (`select`).

    `paths` are the files, `begins` the places of their first rows in the table.
    """

    def __init__(
        self,
        table: pa.Table,
        paths: Sequence[Path],
        begins: Sequence[int] = (0,),
        chosen: NDArray[np.int64] | None = None,
    ) -> None:
        self.paths = tuple(paths)
        self._begins = np.asarray(begins, dtype=np.int64)
        self._folder = str(self.path.parent) if len(self.paths) == 1 else ""  # the paths of several are whole
        self._table = table
        self._columns = {name: table[name] for name in table.column_names}
        self._chosen = chosen

    @classmethod
    def read(cls, path: str | Path) -> Manifest:
        """Open JSON lines, CSV or Lhotse cuts, plain or gzip; one `DataError` names every bad row."""
        path = Path(path)
        with _system_memory_pool() as pool:
            table = _fill_durations(read_table(path), path)
            table = _drop_empty_columns(_fill_ids(table))
            _refuse_duplicates(table, path)
            pool.release_unused()
        return cls(table, [path])

    @classmethod
    def read_all(cls, paths: Sequence[Path]) -> Manifest:
        """Open manifests as one, their rows one after the other.

        If two of them have the same id, all ids begin with the number of their manifest, such as `2:`.
        """
        read = [cls.read(path) for path in paths]
        if len(read) == 1:
            return read[0]
        begins = np.cumsum([0, *map(len, read)])[:-1]
        return cls(_join_tables([(each._table, each._folder) for each in read]), paths, begins.tolist())

    @property
    def path(self) -> Path:
        """The file, or the first of several."""
        return self.paths[0]

    @property
    def name(self) -> str:
        """The path of each file, for messages."""
        return ", ".join(map(str, self.paths))

    @cached_property
    def sources(self) -> NDArray[np.int64]:
        """For each utterance the number of its file in `paths`, from 0."""
        positions = np.arange(len(self._table)) if self._chosen is None else self._chosen
        return np.searchsorted(self._begins, positions, side="right") - 1

    @cached_property
    def durations(self) -> NDArray[np.float64]:
        """Seconds of each utterance."""
        durations: NDArray[np.float64] = self._table["duration"].to_numpy()
        return durations if self._chosen is None else durations[self._chosen]

    def __len__(self) -> int:
        return len(self._table) if self._chosen is None else len(self._chosen)

    def __getitem__(self, index: int) -> Utterance:
        position = self._position(index)
        return self._utterance({name: column[position].as_py() for name, column in self._columns.items()})

    def __iter__(self) -> Iterator[Utterance]:
        if self._chosen is not None:
            yield from (self[index] for index in range(len(self)))
            return
        for batch in self._table.to_batches(max_chunksize=4096):
            yield from map(self._utterance, batch.to_pylist())

    def row(self, index: int) -> int:
        """The number of an utterance's row in its file, from 1; blank lines and the header are not counted."""
        position = self._position(index)
        return 1 + position - int(self._begins[self._source(position)])

    def place(self, index: int) -> str:
        """The file of an utterance, and its row, for messages."""
        return f"{self.paths[self._source(self._position(index))]}, row {self.row(index)}"

    def _source(self, position: int) -> int:
        return int(np.searchsorted(self._begins, position, side="right")) - 1

    def _position(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"utterance {index} of {len(self)} in {self.name}")
        index = int(index) % len(self)
        return index if self._chosen is None else int(self._chosen[index])

    def select(self, indices: Sequence[int] | NDArray[Any]) -> Manifest:
        """The utterances at these indices, in this order, without copying their rows."""
        wanted = np.asarray(indices, dtype=np.int64)
        if len(wanted) and not (-len(self) <= wanted.min() and wanted.max() < len(self)):
            raise IndexError(f"an index to select is outside of the {len(self)} utterances of {self.name}")
        wanted = wanted % max(len(self), 1)
        chosen = wanted if self._chosen is None else self._chosen[wanted]
        return Manifest(self._table, self.paths, self._begins.tolist(), chosen)

    def _utterance(self, row: dict[str, Any]) -> Utterance:
        audio, offset = row["audio_filepath"], row.get("offset") or 0.0
        return Utterance(
            id=row.get("id") or derived_id(audio, offset),
            audio_filepath=os.path.join(self._folder, audio),  # noqa: PTH118 - pathlib takes 15 times as long
            duration=row["duration"],
            text=row["text"],
            speaker=row.get("speaker"),
            offset=offset,
        )


def derived_id(audio_filepath: str, offset: float) -> str:
    """The id of a row without one: its path as written, without suffix, and its offset in the file."""
    stem = _SUFFIX.sub("", audio_filepath)
    return f"{stem}@{offset!r}" if offset else stem


def write_manifest(
    path: str | Path, utterances: Iterable[Utterance], columns: Iterable[Mapping[str, Any]] = ()
) -> Path:
    """Write JSON lines with audio paths relative to the manifest's folder; the file appears complete, or not at all.

    `columns` are more columns of each utterance; they change none of those that we know.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as stream:
            _write_lines(stream, _lines(path.parent, utterances, columns), packed=path.suffix == ".gz")
        aside.replace(path)
    except OSError as error:
        if isinstance(error, SonoscoError):
            raise
        reason = error.strerror or error
        raise StorageError(
            f"The manifest {path} could not be written: {as_sentence(reason)} Nothing else was changed."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
    return path


def _write_lines(stream: BinaryIO, lines: Iterable[bytes], packed: bool) -> None:
    if packed:
        with gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0) as file:
            file.writelines(lines)
    else:
        stream.writelines(lines)
    stream.flush()
    os.fsync(stream.fileno())


def _lines(folder: Path, utterances: Iterable[Utterance], columns: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    relative = _path_maker(folder)
    more = chain(columns, repeat({}))
    for utterance, others in zip(utterances, more, strict=False):
        row: dict[str, Any] = {
            "id": utterance.id,
            "audio_filepath": relative(utterance.audio_filepath),
            "duration": utterance.duration,
            "text": utterance.text,
        }
        if utterance.speaker is not None:
            row["speaker"] = utterance.speaker
        if utterance.offset:
            row["offset"] = utterance.offset
        row |= {name: value for name, value in others.items() if name not in row and name not in _OWN_COLUMNS}
        yield _as_json(row).encode(errors="backslashreplace") + b"\n"  # half a character stays its JSON escape


def _path_maker(folder: Path) -> Callable[[str], str]:
    """A function that makes paths relative to a folder; it looks up each folder of recordings once."""

    @functools.cache
    def path_to(parent: str) -> str:
        return (_relative_path(folder, Path(parent)) / "_").as_posix()[:-1]

    def relative(audio: str) -> str:
        parent, name = os.path.split(audio)
        return path_to(parent) + name

    return relative


def _relative_path(folder: Path, other: Path) -> Path:
    if other.is_relative_to(folder):
        return other.relative_to(folder)
    try:  # `..` goes through the real folders, so links are followed first
        return Path(os.path.relpath(other.resolve(), folder.resolve()))
    except ValueError:  # another drive
        return other.resolve()


def _fill_durations(table: pa.Table, path: Path) -> pa.Table:
    """Fill in the durations that the manifest lacks, from the headers of the recordings."""
    unknown = np.flatnonzero(table["duration"].is_null().to_numpy())
    if len(unknown) == 0:
        return table
    logger.warning(
        "%s lacks the duration of %d utterances, which is now read from the recordings. "
        "`sonosco data manifest` writes a manifest that has them.", path, len(unknown),
    )  # fmt: skip
    durations = table["duration"].to_numpy().copy()
    problems: list[tuple[int, str]] = []

    def measure(position: int) -> float | str:
        try:
            length = audio_info(path.parent / table["audio_filepath"][position].as_py()).duration
        except DataError as error:
            return str(error)
        rest: float = length - (table["offset"][position].as_py() or 0.0)
        return rest if rest >= 0 else f"begins after the end of the recording, which has {length:.2f} s"

    with ThreadPoolExecutor(8) as pool:
        for start in range(0, len(unknown), _MEASURED_AT_ONCE):
            some = unknown[start : start + _MEASURED_AT_ONCE].tolist()
            for position, found in zip(some, pool.map(measure, some), strict=True):
                if isinstance(found, str):
                    problems.append((position + 1, found))
                else:
                    durations[position] = found
            if len(problems) >= MOST_PROBLEMS:
                break
    if problems:
        raise bad_rows_error(path, problems)
    return table.set_column(table.column_names.index("duration"), "duration", pa.array(durations))


@contextmanager
def _system_memory_pool() -> Iterator[pa.MemoryPool]:
    """Have Arrow use the allocator of the system, which, unlike Arrow's own, returns the memory after reading."""
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield pa.default_memory_pool()
    finally:
        pa.set_memory_pool(usual)


def _fill_ids(table: pa.Table) -> pa.Table:
    """Give each row an id if some rows have one; if none has, ids are derived when they are needed."""
    missing = table["id"].null_count
    if missing in (0, len(table)):
        return table
    rows = zip(table["id"].to_pylist(), table["audio_filepath"].to_pylist(), table["offset"].to_pylist(), strict=True)
    ids = [given or derived_id(audio, offset or 0.0) for given, audio, offset in rows]
    return table.set_column(table.column_names.index("id"), "id", pa.array(ids, pa.string()))


def _join_tables(parts: Sequence[tuple[pa.Table, str]]) -> pa.Table:
    """The rows of tables with their folders as one table, with an id for each row and paths that need no folder."""
    full = [_with_full_paths(table, folder) for table, folder in parts]
    ids = pa.chunked_array([chunk for table in full for chunk in table["id"].chunks])
    if pc.count_distinct(ids).as_py() < len(ids):
        full = [
            table.set_column(
                table.column_names.index("id"), "id", pc.binary_join_element_wise(str(number), table["id"], ":")
            )
            for number, table in enumerate(full, 1)
        ]
    joined = pa.concat_tables(full, promote_options="default").unify_dictionaries()
    position = joined.column_names.index("duration")
    return joined.set_column(position, "duration", joined["duration"].combine_chunks())


def _with_full_paths(table: pa.Table, folder: str) -> pa.Table:
    written = table["audio_filepath"].to_pylist()
    if "id" not in table.column_names:
        offsets = table["offset"].to_pylist() if "offset" in table.column_names else repeat(None)
        ids = [derived_id(audio, offset or 0.0) for audio, offset in zip(written, offsets, strict=False)]
        table = table.add_column(0, "id", pa.array(ids, pa.string()))
    paths = [os.path.join(folder, audio) for audio in written]  # noqa: PTH118 - pathlib takes 15 times as long
    return table.set_column(table.column_names.index("audio_filepath"), "audio_filepath", pa.array(paths, pa.string()))


def _drop_empty_columns(table: pa.Table) -> pa.Table:
    """Drop empty columns, and store the name of each speaker once."""
    table = table.select([name for name in table.column_names if table[name].null_count < len(table)])
    if "speaker" in table.column_names:
        position = table.column_names.index("speaker")
        table = table.set_column(position, "speaker", table["speaker"].dictionary_encode().unify_dictionaries())
    position = table.column_names.index("duration")
    return table.set_column(position, "duration", table["duration"].combine_chunks())


def _refuse_duplicates(table: pa.Table, path: Path) -> None:
    keys = table["id"] if "id" in table.column_names else _derived_ids(table)
    if pc.count_distinct(keys).as_py() == len(table):
        return
    first: dict[str, int] = {}
    problems: list[tuple[int, str]] = []
    for number, key in enumerate(keys.to_pylist(), 1):
        if first.setdefault(key, number) != number:
            problems.append((number, f"has the same id as row {first[key]}: {key!r}. Give each row its own `id`"))
            if len(problems) == MOST_PROBLEMS:
                break
    raise bad_rows_error(path, problems)


def _derived_ids(table: pa.Table) -> pa.ChunkedArray:
    """A text for each row that is different where its `derived_id` is."""
    stems = pc.replace_substring_regex(table["audio_filepath"], _SUFFIX.pattern, "")
    if "offset" not in table.column_names:
        return stems
    offsets = pc.fill_null(table["offset"], 0.0)
    marks = pc.if_else(pc.equal(offsets, 0.0), "", pc.binary_join_element_wise("@", offsets.cast(pa.string()), ""))
    return pc.binary_join_element_wise(stems, marks, "")
