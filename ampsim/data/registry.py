"""Every data set: its files, where they come from, and where they lie here.

The four `.gz` files of MNIST are those of its authors' old page, which its mirrors still give out;
their hashes were checked by packing the same images again with the header of that time. The text
files are checked against the git blobs that the addresses name. `qm9.npz` and the 10,000 sentences
are what could be had of QM9 and WikiNER; see `holds` and `source`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ampsim.arguments import checked
from ampsim.errors import AmpsimError, UnknownNameError, one_of
from ampsim.files import expanded

_MNIST: Final = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_DYNET: Final = (
    "https://raw.githubusercontent.com/neulab/dynet-benchmark/"
    "b23f01f6f3c5386f67c9a355d9b25d72deb03ced/data/"
)
_NN4NLP: Final = (
    "https://raw.githubusercontent.com/neubig/nn4nlp-code/"
    "970d91a51664b3d91a9822b61cd76abea20218cb/data/"
)

COMPRESSIONS: Final = ("", ".gz", ".xz")
"""Suffixes under which a file is looked for, in this order."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A form in which a file is known.

    Args:
        name: with the suffix of its compression.
        size_bytes: of the file as it is given out.
        sha256: of the file as it is given out, 64 hexadecimal digits.
        urls: where it can be fetched from, each tried in turn; none where nobody gives it out.
    """

    name: str
    size_bytes: int
    sha256: str
    urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a data set.

    Args:
        stems: names without suffix of compression under which it is accepted, the best first.
        holds: what is in it, in words.
        instances: how many items each known copy has.
        copies: the forms that are known; others are read just as well.
    """

    stems: tuple[str, ...]
    holds: str
    instances: int
    copies: tuple[Copy, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name under which the file is looked for, the best first."""
        return tuple(stem + suffix for stem in self.stems for suffix in COMPRESSIONS)

    @property
    def remote(self) -> Copy | None:
        """The copy that can be fetched, if there is one."""
        return next((copy for copy in self.copies if copy.urls), None)


@dataclass(frozen=True, slots=True)
class DataSource:
    """A data set by its files.

    Args:
        name: of the data set, and of its folder.
        description: what an item is and what is to be told from it.
        source: who made it, where, under which licence.
        files: by the name under which the readers ask for them; empty where it is generated.
    """

    name: str
    description: str
    source: str
    files: Mapping[str, DataFile]


def source_named(name: str) -> DataSource:
    """The data set of that name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in DATASETS:
        raise UnknownNameError(one_of("data set", name, DATASETS))
    return DATASETS[name]


def _idx(stem: str, holds: str, instances: int, *copies: tuple[int, str]) -> DataFile:
    """A file of MNIST: as first given out, as in the project's data folder, and unpacked."""
    urls = tuple(f"{base}{stem}.gz" for base in _MNIST)
    (first, *others), unpacked = copies[:-1], copies[-1]
    given = (
        Copy(f"{stem}.gz", *first, urls),
        *(Copy(f"{stem}.gz", *other) for other in others),
        Copy(stem, *unpacked),
    )
    return DataFile((stem,), holds, instances, given)


def _text(
    stems: tuple[str, ...],
    holds: str,
    instances: int,
    copies: tuple[tuple[int, str], tuple[int, str]],
    url: str,
) -> DataFile:
    """A text file: plain as at its address, and packed as in the project's data folder."""
    plain, packed = copies
    given = (Copy(stems[-1], *plain, (url,)), Copy(f"{stems[-1]}.xz", *packed))
    return DataFile(stems, holds, instances, given)


_SOURCES: Final = (
    DataSource(
        name="list_reduction",
        description="an operation and 1 to 9 digits; tell the result modulo 10",
        source="generated from the seed, as AMPNet, Appendix B.2, describes",
        files={},
    ),
    DataSource(
        name="mnist",
        description="28 x 28 grey values of a handwritten digit; tell the digit",
        source="LeCun, Cortes and Burges 1998, yann.lecun.com/exdb/mnist",
        files={
            "train-images": _idx(
                "train-images-idx3-ubyte",
                "training images",
                60_000,
                (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
                (9_630_610, "71524e2cd1ad2968737f7f2f2ff69cbfc32df8ccddff51593f7cb2d4e0eb5b64"),
                (47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
            ),
            "train-labels": _idx(
                "train-labels-idx1-ubyte",
                "training labels",
                60_000,
                (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
                (28_878, "fe03b8bd7915f70bf5aa08be480aa413fbd85afcaa58b35d230d335f284fd88e"),
                (60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
            ),
            "valid-images": _idx(
                "t10k-images-idx3-ubyte",
                "test images",
                10_000,
                (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
                (1_602_050, "5634745efa576a17e7d4cf5cd9d09123c75e6538e5114267c2d156edaf519341"),
                (7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
            ),
            "valid-labels": _idx(
                "t10k-labels-idx1-ubyte",
                "test labels",
                10_000,
                (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
                (4_517, "ae18e77e031ccde52407f794d123116439864147d33ac992975f85dd4dc42af6"),
                (10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
            ),
        },
    ),
    DataSource(
        name="sst",
        description="parse tree of a sentence; tell the sentiment 0..4 of every phrase",
        source="Stanford Sentiment Treebank, Socher et al. 2013, nlp.stanford.edu/sentiment",
        files={
            "train": _text(
                ("train.txt",),
                "training trees",
                8_544,
                (
                    (2_160_058, "e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7"),
                    (399_848, "a573e480e375c372c08f11a061270348dba9de7a0a1a4783dfca07fef429d9ba"),
                ),
                f"{_DYNET}trees/train.txt",
            ),
            "valid": _text(
                ("dev.txt",),
                "validation trees",
                1_101,
                (
                    (280_825, "0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40"),
                    (62_228, "2e9becf86972939f4d72bdf97d6233f5ec50268c6132f8147041987d49e71022"),
                ),
                f"{_DYNET}trees/dev.txt",
            ),
            "test": _text(
                ("test.txt",),
                "test trees, not needed for training",
                2_210,
                (
                    (559_614, "6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761"),
                    (116_792, "e5e3538665f91eddb38d6d788388e7d957bbd3d90d9ce3cd4c74edc5a31e869c"),
                ),
                f"{_DYNET}trees/test.txt",
            ),
        },
    ),
    DataSource(
        name="qm9",
        description="atoms and bonds of a small molecule; tell the norm of its dipole moment",
        source="made from QM9, Ramakrishnan et al. 2014, doi.org/10.6084/m9.figshare.978904; nobody"
        " gives it out in this form, which ampsim/data/qm9.py describes",
        files={
            "molecules": DataFile(
                ("qm9.npz",),
                "molecules, 16,845 with a dipole moment",
                128_818,
                (
                    Copy(
                        "qm9.npz",
                        27_966_795,
                        "39c312282688d4719c2a85a43c953037593e0e7611214730fb7a087a0b0bb38f",
                    ),
                ),
            ),
        },
    ),
    DataSource(
        name="wikiner",
        description="words of a sentence; tell for each which kind of name it belongs to",
        source="WikiNER and Wikigold, Nothman et al. 2013, from the DyNet benchmark suite; its"
        " whole train.txt has 142,153 sentences, the first 10,000 are train-10k.txt",
        files={
            "train": _text(
                ("train.txt", "train-10k.txt"),
                "training sentences",
                10_000,
                (
                    (2_008_758, "16b42ac4ce1a32f3a67580f20106765645ea051cc47f0ab8e2ecdbddf114ca98"),
                    (440_704, "31f334900872e929af5f75a6b2cf0482b983cd187a312d14016b7294f655680e"),
                ),
                f"{_NN4NLP}tags/train.txt",
            ),
            "valid": _text(
                ("dev.txt",),
                "validation sentences",
                1_696,
                (
                    (314_804, "bbbf63da9cc22d347c1c1d72ef35b5fde2fa3ece9c2c048b16dc4285e763e553"),
                    (80_676, "65c2698822c1981b3141dffcda85ff88965a6e818b3387b90330beb60c6f2645"),
                ),
                f"{_DYNET}tags/dev.txt",
            ),
        },
    ),
)

DATASETS: Final[Mapping[str, DataSource]] = MappingProxyType({one.name: one for one in _SOURCES})
"""Every data set by its name."""


VARIABLE: Final = "AMPSIM_DATA"
"""Environment variable that names the data folder."""


class MissingDataError(AmpsimError):
    """A file of a data set is not there, or could not be fetched."""


@checked
def data_folder(explicit: str | os.PathLike[str] | None = None) -> Path:
    """The folder with `mnist/`, `sst/`, `qm9/` and `wikiner/` in it; it need not exist.

    Args:
        explicit: the folder, if the user named one; else `$AMPSIM_DATA`, else the cache folder
            that the platform keeps for a program.
    """
    named = os.fspath(explicit) if explicit is not None else os.environ.get(VARIABLE)
    if named:
        return expanded(named)
    import platformdirs  # here, so that those who name a folder need not wait for it

    return platformdirs.user_cache_path("ampsim", appauthor=False)


def there(source: DataSource, file: DataFile, folder: Path) -> Path | None:
    """The file of a data set in a data folder, in whichever form it is there, the best first."""
    candidates = (folder / source.name / name for name in file.names)
    return next((path for path in candidates if os.path.isfile(path)), None)


@checked
def find_file(dataset: str, part: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """The file of one part of a data set.

    Args:
        dataset: its name in `DATASETS`.
        part: key of the file there, such as "train".
        folder: as for `data_folder`.

    Raises:
        MissingDataError: it is not there; the line says where it comes from and what to try.
        UnknownNameError: no data set has that name, or it has no such part.
    """
    source, root = source_named(dataset), data_folder(folder)
    if part not in source.files:
        raise UnknownNameError(one_of(f"file of data set {dataset}", part, source.files))
    path = there(source, source.files[part], root)
    if path is None:
        raise MissingDataError(_missing(source, part, root))
    return path


def _missing(source: DataSource, part: str, root: Path) -> str:
    """Which file, where it was looked for, where it comes from, what to try."""
    file = source.files[part]
    stems = " or ".join(file.stems)
    remedies = ["--set data=synthetic", f"{VARIABLE}=FOLDER if you have it elsewhere"]
    if file.remote is not None:
        remedies.insert(0, f"'ampsim data {source.name} --download'")
    return (
        f"{source.name}: no {stems} (plain, .gz or .xz) in {root / source.name};"
        f" its source: {source.source}; try {', '.join(remedies[:-1])}, or {remedies[-1]}"
    )
