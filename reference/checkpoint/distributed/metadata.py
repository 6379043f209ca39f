"""The `.metadata` of torch.distributed.checkpoint, read without torch.distributed and without executing anything.

`.metadata` is a pickle, and the stock reader gives it to `pickle.load`, which calls whatever the file names.  Here
every name that a real file has stands for an inert record of this module, and any other name is refused.

Claimed: reading imports nothing and calls nothing but the sealed classes below; what is returned has been checked:
every item lies within a file of the folder, and no two overlap.  Trusted: Python's unpickler, written in
Python, with `find_class` and its operations limited, and nothing that the file says.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import pickle
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch

from guarded_moments.reference.errors import CheckpointError, UnsupportedError

NAME = ".metadata"
_MODULE = "torch.distributed.checkpoint"


@dataclass(frozen=True)
class Item:
    """One stored object: a chunk of a tensor, or a pickled value; each is a small file of `torch.save`."""

    name: str  #: its key in the flattened state_dict: `optim.state.0.weight.exp_avg`
    offsets: tuple[int, ...]  #: of the chunk in the whole tensor; empty for a value
    sizes: tuple[int, ...] | None  #: of the chunk; None for a value
    whole: tuple[int, ...] | None  #: the whole tensor's shape; None for a value
    file: str
    start: int  #: bytes
    length: int  #: bytes

    @property
    def where(self) -> str:
        """The chunk in words: nothing where it is the whole tensor, else `[17:33, 0:16]`."""
        if self.sizes is None or self.sizes == self.whole:
            return ""
        return f"[{', '.join(f'{a}:{a + n}' for a, n in zip(self.offsets, self.sizes, strict=True))}]"


@dataclass(frozen=True)
class Metadata:
    """What a folder holds."""

    items: dict[str, list[Item]]  #: by name, in the order of the offsets
    sha256: str  #: of the file

    def files(self) -> dict[str, list[Item]]:
        """The items of each file, in the order of their bytes."""
        found: dict[str, list[Item]] = defaultdict(list)
        for item in itertools.chain.from_iterable(self.items.values()):
            found[item.file].append(item)
        return {file: sorted(items, key=lambda item: item.start) for file, items in sorted(found.items())}


def read_metadata(folder: Path, *, with_files: bool = True) -> Metadata:
    """Read and check a folder's `.metadata`.

    Args:
        folder: where it is.
        with_files: whether the files that it describes must be there too.

    Raises:
        CheckpointError: there is none, it is damaged, it names what a real one does not, or the files do not fit it.
        UnsupportedError: items that an extension transformed.
    """
    path = folder / NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        msg = f"{folder}: is a folder without {NAME}: no checkpoint of {_MODULE}, or an unfinished one"
        raise CheckpointError(msg) from None
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}"
        raise CheckpointError(msg) from None
    try:
        metadata = _checked(_Reader(io.BytesIO(content)).load(), hashlib.sha256(content).hexdigest())
    except (CheckpointError, UnsupportedError) as error:
        raise type(error)(f"{path}: {error}") from None
    except Exception as error:  # noqa: BLE001 - damage makes an unpickler fail in any way it likes
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        msg = f"{path}: is no metadata of {_MODULE}, or is damaged ({cause})"
        raise CheckpointError(msg) from None
    if with_files:
        _require_files(folder, metadata)
    return metadata


class _Sealed(type):
    """Classes on which an unpickler can set nothing."""

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        msg = f"{cls.__name__}.{name} cannot be set"
        raise AttributeError(msg)


class _Record(metaclass=_Sealed):
    """Any object of the file: the state it was pickled with, and no behaviour."""

    __slots__ = ("state",)

    def __init__(self, *arguments: object) -> None:
        self.state: Any = arguments

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Size(metaclass=_Sealed):
    """`torch.Size` and `pathlib.Path`, as the tuple of their parts."""

    def __new__(cls, *arguments: object) -> tuple[Any, ...]:  # type: ignore[misc]  # a tuple, whatever is asked for
        """The argument, or the arguments."""
        return tuple(arguments[0]) if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)) else arguments


class _Tensor(_Record):
    """`TensorStorageMetadata`."""

    __slots__ = ()


#: Every name that torch 2.13 writes into a `.metadata`, dtypes apart.
_ALLOWED: dict[tuple[str, str], type] = {
    (f"{_MODULE}.metadata", "Metadata"): _Record,
    (f"{_MODULE}.metadata", "TensorStorageMetadata"): _Tensor,
    (f"{_MODULE}.metadata", "BytesStorageMetadata"): _Record,
    (f"{_MODULE}.metadata", "ChunkStorageMetadata"): _Record,
    (f"{_MODULE}.metadata", "MetadataIndex"): _Record,
    (f"{_MODULE}.metadata", "TensorProperties"): _Record,
    (f"{_MODULE}.metadata", "StorageMeta"): _Record,
    (f"{_MODULE}.metadata", "_MEM_FORMAT_ENCODING"): _Record,
    (f"{_MODULE}.filesystem", "_StorageInfo"): _Record,
    ("torch.serialization", "_get_layout"): _Record,
    ("torch", "Size"): _Size,
    ("pathlib", "PosixPath"): _Size,
    ("pathlib", "WindowsPath"): _Size,
    ("pathlib._local", "PosixPath"): _Size,  # Python 3.13
    ("pathlib._local", "WindowsPath"): _Size,
}


#: The operations that pickles of protocol 2 to 5 of such records consist of.
_OPERATIONS = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.GLOBAL, pickle.STACK_GLOBAL),
    *(pickle.NEWOBJ, pickle.REDUCE, pickle.BUILD),
    *(pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE8),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.MEMOIZE, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
)


class _Reader(pickle._Unpickler):  # noqa: SLF001 - Python's own: the one in C allocates a memo as large as a file asks for
    """An unpickler that knows the names and the operations above and no others."""

    dispatch: ClassVar = {op[0]: pickle._Unpickler.dispatch[op[0]] for op in _OPERATIONS}  # noqa: SLF001 - as above

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - of the base class
        """The stand-in for a name."""
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        if module == "torch" and isinstance(vars(torch).get(name), torch.dtype):
            return vars(torch)[name]
        msg = f"names {module}.{name}, which no metadata of {_MODULE} needs: a crafted or foreign file; nothing was run"
        raise CheckpointError(msg)


def _checked(loaded: Any, sha256: str) -> Metadata:  # noqa: ANN401 - whatever the file held
    fields = loaded.state
    stored, kinds = fields["storage_data"], fields["state_dict_metadata"]
    items: dict[str, list[Item]] = {str(name): [] for name in kinds}
    for index, place in stored.items():
        name, info = index.state["fqn"], place.state
        if info.get("transform_descriptors"):
            by = ", ".join(map(str, info["transform_descriptors"]))
            msg = f"{name} was transformed by the extension {by}, which is not supported"
            raise UnsupportedError(msg)
        offsets, sizes, whole = _chunk(kinds[name], index.state.get("offset"))
        item = Item(name, offsets, sizes, whole, str(info["relative_path"]), int(info["offset"]), int(info["length"]))
        items[name].append(item)
    for name, kind in kinds.items():
        chunks = len(kind.state["chunks"]) if isinstance(kind, _Tensor) else 1
        if len(items[name]) != chunks:
            msg = f"{name} has {chunks} chunks, of which {len(items[name])} are stored"
            raise CheckpointError(msg)
        items[name].sort(key=lambda item: item.offsets)
    return Metadata(items, sha256)


def _chunk(kind: Any, offset: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...] | None]:  # noqa: ANN401
    """Offsets and sizes of the chunk at an offset, and the shape of the whole."""
    if not isinstance(kind, _Tensor):
        return (), None, None
    offsets = tuple(int(a) for a in offset)
    for chunk in kind.state["chunks"]:
        if tuple(chunk.state["offsets"]) == offsets:
            sizes, whole = (tuple(int(n) for n in shape) for shape in (chunk.state["sizes"], kind.state["size"]))
            fits = len(offsets) == len(sizes) == len(whole)
            if fits and all(0 <= a <= a + n <= end for a, n, end in zip(offsets, sizes, whole, strict=True)):
                return offsets, sizes, whole
    msg = f"a chunk at {offsets} is stored, and none that fits the tensor is described there"
    raise CheckpointError(msg)


def _require_files(folder: Path, metadata: Metadata) -> None:
    """Refuse files that are missing or too short, names that lead out of the folder, and items that overlap."""
    for name, items in metadata.files().items():
        if Path(name).name != name or name in {"", ".", ".."}:
            msg = f"{folder / NAME}: names the file {name!r}, which is not directly in the folder"
            raise CheckpointError(msg)
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            msg = f"{folder / name}: belongs to the checkpoint and cannot be read: {error.strerror or error}"
            raise CheckpointError(msg) from None
        end = 0
        for item in items:
            if item.start < end or item.length < 0 or item.start + item.length > size:
                msg = f"{folder / name}: {size} bytes do not hold {item.name} at {item.start}, or it overlaps another"
                raise CheckpointError(msg)
            end = item.start + item.length
