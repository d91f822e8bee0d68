"""Files of data sets that are cut off, damaged, or of another kind."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mutation import bases
from mutation.case import Call, Command, Function, Place
from mutation.text import damaged

_MODELS = {
    "mnist": ["mlp", "--set", "hidden=2", "--set", "batch=2"],
    "sst": ["tree_lstm", "--set", "words=30"],
    "qm9": ["ggnn", "--set", "hidden=11"],
    "wikiner": ["bilstm_tagger", "--set", "words=30", "--set", "characters=60", "--set", "tags=6"],
}


def data(place: Place) -> Call:
    """One wrong file in a data folder, under the commands and functions that read it."""
    random = place.random
    files = bases.data_files()
    name = random.choice(list(files))
    _put(place, "data", files, name)
    source = name.partition("/")[0]
    few = ["--data", "data", "--instances", "3", "--workers", "4", "--schedule", "amp"]
    loader = _loaders()[source]
    return random.choice(
        (
            Command(["data", "--data", "data"]),
            Command(["data", source, "--data", "data", "--json", "-"]),
            Command(["gantt", *_MODELS[source], *few, "--out", "chart.json"]),
            Function(
                f"{source}.load", lambda: list(loader("data").batches("train", epoch=0, seed=0))
            ),
            Function(
                f"{source}.load", lambda: list(loader("data").batches("valid", epoch=0, seed=0))
            ),
        )
    )


def vectors(place: Place) -> Call:
    """A wrong file of word vectors."""
    from ampsim.data import Vocabulary, read_vectors

    random = place.random
    is_long = random.randrange(10) == 0
    content = _long(bases.vectors(), random) if is_long else damaged(bases.vectors(), random)
    name = place.write("vectors.txt", content)
    words = Vocabulary.of(["good", "a", "tree"])
    return Function("read_vectors", lambda: read_vectors(name, words, 3), name)


def _loaders() -> dict[str, Any]:
    from ampsim.data import Mnist, Qm9Dipoles, SentimentTrees, WikiNer

    return {
        "mnist": Mnist.load,
        "sst": SentimentTrees.load,
        "qm9": Qm9Dipoles.load,
        "wikiner": WikiNer.load,
    }


def _put(place: Place, folder: str, files: dict[str, bytes], wrong: str) -> None:
    """Write every file as it should be but one."""
    random = place.random
    for name, content in files.items():
        if name != wrong:
            place.write(f"{folder}/{name}", content)
    path = place.folder / folder / wrong
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = random.randrange(20)
    if kind == 0:
        return
    if kind == 1:
        path.mkdir()
    elif kind == 2:
        os.mkfifo(path)
    elif kind == 3:
        path.symlink_to(random.choice((path.name, "nowhere", "/dev/zero", "/dev/null")))
    else:
        path.write_bytes(_wrong(Path(wrong), files[wrong], random))


@cache
def _bomb(suffix: str) -> bytes:
    """A packed file of a few hundred kilobytes that is far longer unpacked: of zeros alone."""
    pack = gzip.compress if suffix == ".gz" else lzma.compress
    return pack(bytes(300_000_000), 1)


def _long(content: bytes, random: random.Random) -> bytes:
    """A file of a single line of megabytes."""
    line = random.choice((content.replace(b"\n", b" "), b"x", b"\x00", b"(", b"0 ", b"|")) or b"x"
    return line * (5_000_000 // len(line))


def _wrong(name: Path, content: bytes, random: random.Random) -> bytes:
    """Damage a packed file outside or inside."""
    chosen = random.randrange(30)
    if chosen == 0 and name.suffix == ".gz":
        return _bomb(name.suffix)
    if chosen < 3:
        pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(name.suffix, bytes)
        return pack(_long(content, random))
    if name.suffix in (".gz", ".xz") and random.random() < 0.7:
        unpack, pack = (
            (gzip.decompress, gzip.compress)
            if name.suffix == ".gz"
            else (lzma.decompress, lzma.compress)
        )
        return pack(damaged(unpack(content), random))
    if name.suffix == ".npz" and random.random() < 0.7:
        return _wrong_arrays(content, random)
    return damaged(content, random)


def _wrong_arrays(content: bytes, random: random.Random) -> bytes:
    """Arrays of which one is wrong."""
    arrays = dict(np.load(io.BytesIO(content)))
    name = random.choice(list(arrays))
    if random.randrange(6) == 0:
        return _without_array(content, name, random)
    array = arrays[name]
    flat = array.astype(np.int64 if array.dtype.kind in "iu" else array.dtype).copy()
    flat.flat[random.randrange(flat.size)] = random.choice((-1, 0, 1, 5, 99, 255, 2**31))
    ways = (
        flat,
        array[:-1],
        array[::-1],
        array[None],
        array.astype(object),
        array.astype(str),
        array.astype(complex),
        array.astype(np.float64) * np.nan,
        np.zeros(0, array.dtype),
        np.array(3),
        np.concatenate([array, array]),
        array.astype(bool),
        array.astype("datetime64[s]") if array.dtype.kind in "iu" else array,
    )
    chosen = random.randrange(len(ways) + 1)
    if chosen == len(ways):
        del arrays[name]
    else:
        arrays[name] = ways[chosen]
    made = io.BytesIO()
    np.savez(made, allow_pickle=True, **arrays)
    return made.getvalue()


def _without_array(content: bytes, name: str, random: random.Random) -> bytes:
    """Arrays of which one is no array: other bytes, cut off, or called otherwise."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(made, "w") as after:
        for member in before.namelist():
            held = before.read(member)
            if member == f"{name}.npy":
                held = random.choice((b"", b"text", held[:7], held[:60], held[:-1], b"x" * 5000))
                member = random.choice((member, member, name, f"{name}.txt"))
            after.writestr(member, held)
    return made.getvalue()
