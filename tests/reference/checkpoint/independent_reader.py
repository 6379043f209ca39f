"""A reader of `.gmc` files written from `docs/file-format.md` alone, as someone would write it in another language.

It imports nothing of this project, nor torch, NumPy, safetensors or pickle: what it gives is plain values, and arrays
of bytes.  Slow and obvious.
"""

import hashlib
import json
import math
import re
import struct
import zipfile
import zlib
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from io import BytesIO
from itertools import product
from typing import Any, NamedTuple

KNOWN_VERSION = 3
BY_TENSOR = {"m_codes", "v_codes", "escapes", "parameters"}
ELEMENT_BYTES = {
    "Float": 4,
    "Double": 8,
    "Half": 2,
    "BFloat16": 2,
    "Long": 8,
    "Int": 4,
    "Short": 2,
    "Byte": 1,
    "Bool": 1,
}


class DamagedError(Exception):
    """The file is not what the specification says."""


class Array(NamedTuple):
    """A tensor: its elements in the order of the indices."""

    element: str  #: `Float`, `Byte`, ...
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    data: bytes


class Global(NamedTuple):
    """A name in a pickle; it is never looked up."""

    module: str
    name: str


def require(condition: object, what: str) -> None:
    if not condition:
        raise DamagedError(what)


def sha256(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


# 1, 2, 7: the file, its arrays, its digests


def arrays_of(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The description of the file and the arrays, once their digests are right."""
    require(len(content) >= 8, "no length")
    length = int.from_bytes(content[:8], "little")
    require(8 + length <= len(content), "truncated")
    header = json.loads(content[8 : 8 + length])
    said = json.loads(header.pop("__metadata__")["guarded_moments"])
    require(said["format_version"] <= KNOWN_VERSION, "a newer version")
    require(said["format_version"] == KNOWN_VERSION, "an older version")
    require(re.fullmatch("[0-9a-f]{64}", said["sha256"]), "no digest")
    blank = content[: 8 + length].replace(said["sha256"].encode(), b"0" * 64, 1)
    require(sha256(blank) == said["sha256"], "the header's digest")
    data, end, arrays = content[8 + length :], 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, following = entry["data_offsets"]
        require(begin == end <= following <= len(data), f"the place of {name}")
        arrays[name], end = data[begin:following], following
    require(end == len(data), "bytes after the arrays")
    for name in set(arrays) - BY_TENSOR:
        require(sha256(arrays[name]) == said["arrays"][name], f"the digest of {name}")
    return said, arrays


def unzipped(packed: bytes, size: int) -> bytes:
    content = zlib.decompressobj().decompress(packed, size + 1)
    require(len(content) == size, "the size of what is unpacked")
    return content


# 4: the codecs


def rounded(value: Fraction) -> int:
    """The bits of the binary32 nearest to a positive number in its normal range."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    while Fraction(2) ** exponent > value:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= value:
        exponent += 1
    scaled = value / Fraction(2) ** (exponent - 23)
    whole = math.floor(scaled)
    rest = scaled - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2)
    return ((exponent + 126) << 23) + whole


@cache
def log_level(exponent: int) -> int:
    """The bits of `2**(exponent/65536)`."""
    whole, part = divmod(exponent, 65536)
    with localcontext() as context:
        context.prec = 60
        power = Decimal(2) ** (Decimal(part) / 65536)
    return rounded(Fraction(power) * Fraction(2) ** whole)


@cache
def dynamic_map(*, signed: bool) -> tuple[int, ...]:
    """The bits of the 256 entries."""
    magnitudes = []
    for d in range(7):
        count = 2**d if signed else 2 ** (d + 1)
        magnitudes += [
            Fraction(10) ** (d - 6) * (Fraction(1, 10) + Fraction(9, 10) * Fraction(2 * j + 1, 2 * count))
            for j in range(count)
        ]
    bits = [rounded(value) for value in magnitudes]
    negative = [value | 0x80000000 for value in reversed(bits)] if signed else []
    entries = (*negative, 0, *bits, rounded(Fraction(1)))
    require(len(entries) == 256, "a map of 256")
    return entries


def multiplied(a: int, b: int) -> int:
    """The bits of the product of two binary32, rounded once: it is exact in binary64."""
    values = struct.unpack("<ff", struct.pack("<II", a, b))
    (bits,) = struct.unpack("<I", struct.pack("<f", values[0] * values[1]))
    return int(bits)


def grids_of(entry: dict[str, Any], taken: dict[str, bytes], run: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Origin and pitch of both grids of a run."""
    if "grids" in entry["parameters"]:
        m, v = entry["parameters"]["grids"]
        return tuple(m), tuple(v)
    units = (65536, 1024) if entry["codec"] == "lin8" else (512, 4)
    found = []
    for moment in "mv":
        (origin,) = struct.unpack_from("<h", taken[f"{moment}_origins"], 2 * run)
        (pitch,) = struct.unpack_from("<H", taken[f"{moment}_pitches"], 2 * run)
        found.append((origin * units[0], pitch * units[1]))
    return found[0], found[1]


def level(codec: str, grid: tuple[int, int], index: int) -> int:
    position = grid[0] + index * grid[1]
    return position if codec == "lin8" else log_level(position)


def decoded(entry: dict[str, Any], taken: dict[str, bytes], k: int, m: int, v: int) -> tuple[int, int] | None:
    """The bits that coordinate `k` decodes to; None for the reserved pair."""
    codec = entry["codec"]
    if codec == "bf16":
        return None if m == 0x8000 else (m << 16, v << 16)
    if codec == "entropy":
        return numbered(entry, taken, k, m, v)
    if codec == "blockwise8":
        scales = [struct.unpack_from("<I", taken[name], 4 * (k // 256))[0] for name in ("m_scales", "v_scales")]
        entries = (dynamic_map(signed=True)[m], dynamic_map(signed=False)[v])
        return None if m == v == 0 else (multiplied(entries[0], scales[0]), multiplied(entries[1], scales[1]))
    require(codec in {"log8", "joint", "lin8", "ratio8"}, f"the codec {codec}")
    if m == 0x80:
        return None
    if codec == "ratio8":
        return ratio(entry, taken, k, m, v)
    m_grid, v_grid = grids_of(entry, taken, k // entry["parameters"].get("size", k + 1))
    m_bits = level(codec, m_grid, (m & 0x7F) - 1) | (m & 0x80) << 24 if m & 0x7F else 0
    return m_bits, level(codec, v_grid, v - 1) if v else 0


def ratio(entry: dict[str, Any], taken: dict[str, bytes], k: int, m: int, v: int) -> tuple[int, int]:
    """The bits that coordinate `k` of `ratio8` decodes to."""
    said = entry["parameters"]
    if "grid" in said:
        (origin, pitch), step = said["grid"], said["step"]
    else:
        run = k // said["size"]
        origin = 512 * struct.unpack_from("<h", taken["v_origins"], 2 * run)[0]
        pitch = 4 * struct.unpack_from("<H", taken["v_pitches"], 2 * run)[0]
        (step,) = struct.unpack_from("<H", taken["m_steps"], 2 * run)
    require(origin % 2 == pitch % 2 == 0, "an odd origin or pitch")
    (step_value,) = struct.unpack("<f", struct.pack("<I", step << 16))
    (multiple,) = struct.unpack("<f", struct.pack("<f", (m - 256 if m & 0x80 else m) * step_value))
    if v == 0:
        return multiplied(*struct.unpack("<II", struct.pack("<ff", multiple, 0.0))), 0
    position = origin + (v - 1) * pitch
    (first,) = struct.unpack("<I", struct.pack("<f", multiple))
    return multiplied(first, log_level(position // 2)), log_level(position)


def numbered(entry: dict[str, Any], taken: dict[str, bytes], k: int, m: int, v: int) -> tuple[int, int] | None:
    """The bits that coordinate `k` of `entropy` decodes to; None for the reserved pair."""
    said = entry["parameters"]
    if m == 0:
        return None
    (step,) = struct.unpack("<f", struct.pack("<I", said["step"] << 16))
    centers = [128 << bits for bits in said["low_bits"]]
    (first,) = struct.unpack("<I", struct.pack("<f", (m - centers[0]) * step))
    if v == 0:
        return multiplied(first, 0), 0
    number = said["base"] + v - centers[1]
    if taken:
        rows, columns = (struct.unpack(f"<{len(taken[name])}b", taken[name]) for name in ("rows", "columns"))
        require(len(rows) * len(columns) == math.prod(entry["shape"]), "rows and columns of another shape")
        number += said["unit"] * (rows[k // len(columns)] + columns[k % len(columns)])
    position = min(max(-126 * 65536 + number * said["pitch"], -126 * 65536), 127 * 65536 + 32768)
    return multiplied(first, log_level(position // 2)), log_level(position)


def unplaned(held: bytes, low_bits: int, count: int) -> list[int]:
    """The codes of `entropy` of one moment."""
    low_bytes = -(-count * low_bits // 8)
    coded, low = held[: len(held) - low_bytes], int.from_bytes(held[len(held) - low_bytes :], "little")
    require(count <= 8 * len(coded), "more coordinates than bits")
    leading = unzipped(coded, count)
    return [leading[k] << low_bits | (low >> (k * low_bits)) & ((1 << low_bits) - 1) for k in range(count)]


# 3: the tensors


class Reader:
    """Takes bytes off the front."""

    def __init__(self, content: bytes) -> None:
        self.left = content

    def take(self, size: int) -> bytes:
        """The next bytes."""
        require(0 <= size <= len(self.left), "an array ends too early")
        taken, self.left = self.left[:size], self.left[size:]
        return taken


ORDER = ("m_origins", "v_origins", "m_pitches", "v_pitches", "m_scales", "v_scales", "m_steps", "rows", "columns")


def moments_of(entry: dict[str, Any], readers: dict[str, Reader]) -> tuple[Array, Array]:
    """One tensor's recovered moments."""
    count, wide = math.prod(entry["shape"]), 2 if entry["codec"] == "bf16" else 1
    sizes = entry.get("code_bytes", [wide * count, wide * count])
    codes = [readers[name].take(size) for name, size in zip(("m_codes", "v_codes"), sizes, strict=True)]
    escapes = readers["escapes"].take(8 * entry["escapes"])
    taken = {}
    for name in sorted(entry["arrays"], key=ORDER.index):
        kind, length = entry["arrays"][name]
        taken[name] = readers["parameters"].take({"float32": 4, "int16": 2, "int8": 1}[kind] * length)
    require(sha256(*codes, escapes, *taken.values())[:32] == entry["sha256"], f"the digest of {entry['where']}")
    pairs = list(struct.iter_unpack("<II", escapes))
    in_memory = []
    if entry["codec"] == "entropy":
        numbers = [unplaned(*of, count) for of in zip(codes, entry["parameters"]["low_bits"], strict=True)]
    else:
        numbers = [[int.from_bytes(code[wide * k : wide * (k + 1)], "little") for k in range(count)] for code in codes]
    for k, (m, v) in enumerate(zip(*numbers, strict=True)):
        found = decoded(entry, taken, k, m, v)
        if found is None:
            require(pairs, f"an escape too few in {entry['where']}")
            found = pairs.pop(0)
        in_memory.append(found)
    require(not pairs, f"an escape too many in {entry['where']}")
    shape, stride = tuple(entry["shape"]), tuple(entry["stride"])
    places = [sum(i * s for i, s in zip(index, stride, strict=True)) for index in product(*map(range, shape))]
    data = [b"".join(struct.pack("<I", in_memory[place][moment]) for place in places) for moment in (0, 1)]
    return Array("Float", shape, stride, data[0]), Array("Float", shape, stride, data[1])


# 5: the checkpoint around the moments


class Unpickler:
    """The part of Python's pickle machine that the specification names."""

    def __init__(self, archive: bytes) -> None:
        self.zip = zipfile.ZipFile(BytesIO(archive))
        (name,) = [name for name in self.zip.namelist() if name.endswith("/data.pkl")]
        self.folder = name.removesuffix("data.pkl")
        require(self.zip.read(f"{self.folder}byteorder") == b"little", "the order of bytes")
        self.code, self.at = self.zip.read(name), 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def take(self, size: int) -> bytes:
        """The next bytes of the pickle."""
        self.at += size
        require(self.at <= len(self.code), "a pickle ends too early")
        return self.code[self.at - size : self.at]

    def number(self, size: int, *, signed: bool = False) -> int:
        """The next bytes, as a number."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def line(self) -> str:
        """The next bytes, to the end of a line."""
        end = self.code.index(b"\n", self.at)
        return self.take(end + 1 - self.at)[:-1].decode()

    def popped(self) -> list[Any]:
        """What was put after the last mark."""
        mark = self.marks.pop()
        items, self.stack = self.stack[mark:], self.stack[:mark]
        return items

    def last(self, count: int) -> tuple[Any, ...]:
        """Taken off the stack."""
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def load(self) -> Any:  # noqa: ANN401 - a checkpoint holds anything
        """What was pickled."""
        while (opcode := self.take(1)) != b".":
            self.do(opcode)
        return self.stack.pop()

    def do(self, opcode: bytes) -> None:  # noqa: C901, PLR0912, PLR0915 - one branch an opcode
        """Obey one opcode."""
        push, stack = self.stack.append, self.stack
        if opcode == b"\x80":
            require(self.number(1) == 2, "the pickle's protocol")
        elif opcode == b"(":
            self.marks.append(len(stack))
        elif opcode in b"}])":
            push({b"}": {}, b"]": [], b")": ()}[opcode])
        elif opcode == b"t":
            items = tuple(self.popped())
            self.stack.append(items)
        elif opcode in b"\x85\x86\x87":
            push(self.last(opcode[0] - 0x84))
        elif opcode == b"a":
            (item,) = self.last(1)
            stack[-1].append(item)
        elif opcode == b"e":
            items_ = self.popped()
            self.stack[-1].extend(items_)
        elif opcode == b"s":
            key, value = self.last(2)
            stack[-1][key] = value
        elif opcode == b"u":
            items_ = self.popped()
            self.stack[-1].update(zip(items_[::2], items_[1::2], strict=True))
        elif opcode in b"N\x88\x89":
            push({b"N": None, b"\x88": True, b"\x89": False}[opcode])
        elif opcode in b"JKM":
            size = {b"J": 4, b"K": 1, b"M": 2}[opcode]
            push(self.number(size, signed=opcode == b"J"))
        elif opcode == b"\x8a":
            push(self.number(self.number(1), signed=True))
        elif opcode == b"G":
            push(struct.unpack(">d", self.take(8))[0])
        elif opcode == b"X":
            push(self.take(self.number(4)).decode())
        elif opcode in b"qr":
            self.memo[self.number(1 if opcode == b"q" else 4)] = stack[-1]
        elif opcode in b"hj":
            push(self.memo[self.number(1 if opcode == b"h" else 4)])
        elif opcode == b"c":
            push(Global(self.line(), self.line()))
        elif opcode == b"R":
            function, arguments = self.last(2)
            push(self.called(function, arguments))
        elif opcode == b"b":
            self.last(1)
        elif opcode == b"Q":
            kind, element, name, _, count = self.last(1)[0]
            require(kind == "storage", "a persistent id")
            push((element.name.removesuffix("Storage"), self.zip.read(f"{self.folder}data/{name}"), count))
        else:
            raise DamagedError(f"the opcode {opcode!r}")

    def called(self, function: Global, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401 - as above
        """What stands for a call of one of the two functions that are known."""
        if function == Global("collections", "OrderedDict") and not arguments:
            return {}
        require(function == Global("torch._utils", "_rebuild_tensor_v2"), f"the name {function}")
        (element, data, count), offset, shape, stride, *_ = arguments
        size = ELEMENT_BYTES[element]
        require(len(data) >= size * count, "a storage's size")
        elements = []
        for index in product(*map(range, shape)):
            place = size * (offset + sum(i * s for i, s in zip(index, stride, strict=True)))
            require(place + size <= len(data), "an element outside its storage")
            elements.append(data[place : place + size])
        return Array(element, tuple(shape), tuple(stride), b"".join(elements))


def put(whole: Any, place: list[Any], value: Any) -> Any:  # noqa: ANN401 - as above
    """The checkpoint with something in a place where None stands."""
    if not place:
        require(whole is None, "a place that is taken")
        return value
    first, *rest = place
    if isinstance(whole, tuple):
        return tuple(put(part, rest, value) if i == first else part for i, part in enumerate(whole))
    whole[first] = put(whole[first], rest, value)
    return whole


def read(content: bytes) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The description of the file, that of the tensors, and the checkpoint."""
    said, arrays = arrays_of(content)
    inside = json.loads(unzipped(arrays["description"], said["description_bytes"]))
    unpacked = {name: Unpickler(unzipped(arrays[name], size)).load() for name, size in said["pickled_bytes"].items()}
    states = {json.dumps(place): state_dict for place, state_dict in unpacked["skeleton"]}
    readers = {name: Reader(arrays[name]) for name in BY_TENSOR}
    for entry in inside["tensors"]:
        state = states[json.dumps(entry["place"])]["state"][entry["key"]]
        for name, moment in zip(("exp_avg", "exp_avg_sq"), moments_of(entry, readers), strict=True):
            require(state[name] is None, "a moment that is there twice")
            state[name] = moment
    require(not any(reader.left for reader in readers.values()), "bytes that belong to no tensor")
    checkpoint = unpacked.get("beside")
    for place, state_dict in unpacked["skeleton"]:
        checkpoint = put(checkpoint, place, state_dict)
    counts = {"coordinates": 0, "escaped": 0, "kept": sum(kept[2] for kept in inside["kept"])}
    counts["escaped"] = sum(entry["escapes"] for entry in inside["tensors"])
    counts["coordinates"] = sum(math.prod(entry["shape"]) for entry in inside["tensors"]) + counts["kept"]
    require(counts == {name: said["certificate"][name] for name in counts}, "the certificate's counts")
    return said, inside, checkpoint
