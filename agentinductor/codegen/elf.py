"""A small reader of ELF files: what a shared object asks of others, and what a cubin says about its kernels.

Only 64-bit little-endian files: the ones that gcc, clang and NVRTC write on the machines we support.
"""

import struct
from dataclasses import dataclass

from ..errors import BuildError

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, addr, offset, size, link, info, align, entsize
_DYNSYM, _DYNAMIC = 11, 6  # section types
_NEEDED = 1  # dynamic tag
_REGCOUNT, _FRAME_SIZE, _SIZED = 0x2F, 0x11, 4  # .nv.info attributes, and the format of those with a payload


@dataclass(frozen=True)
class Section:
    name: str
    type: int
    link: int
    info: int
    data: bytes


def sections(image: bytes) -> list[Section]:
    """Every section with its bytes. Raises BuildError when `image` is not such a file."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise BuildError("the compiler's output is not a 64-bit little-endian ELF file")
    try:
        offset, = struct.unpack_from("<Q", image, 40)
        size, count, names = struct.unpack_from("<HHH", image, 58)
        headers = [_SECTION.unpack_from(image, offset + i * size) for i in range(count)]
        table = _bytes(image, headers[names])
        return [Section(_text(table, h[0]), h[1], h[6], h[7], _bytes(image, h)) for h in headers]
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise BuildError(f"the compiler's output is a damaged ELF file: {error}") from None


def undefined_symbols(image: bytes) -> set[str]:
    """Names that the shared object takes from other libraries."""
    found = sections(image)
    out = set()
    for section in found:
        if section.type == _DYNSYM:
            for name, _, _, index, _, _ in struct.iter_unpack("<IBBHQQ", section.data):
                if index == 0 and name:
                    out.add(_text(found[section.link].data, name))
    return out


def needed_libraries(image: bytes) -> set[str]:
    found = sections(image)
    return {
        _text(found[section.link].data, value)
        for section in found if section.type == _DYNAMIC
        for tag, value in struct.iter_unpack("<QQ", section.data) if tag == _NEEDED
    }


def constructors(image: bytes) -> int:
    """Functions that run when the object is loaded; the compiler's own start-up code is one."""
    return sum(len(s.data) // 8 for s in sections(image) if s.name in (".init_array", ".preinit_array", ".ctors"))


def kernel_resources(cubin: bytes) -> dict[str, tuple[int, int]]:
    """Kernel name -> (registers a thread, local-memory bytes a thread: its stack and its spills)."""
    found = sections(cubin)
    info = next((s for s in found if s.name == ".nv.info"), None)
    symbols = next(s for s in found if s.name == ".symtab")
    names = [_text(found[symbols.link].data, entry[0]) for entry in struct.iter_unpack("<IBBHQQ", symbols.data)]
    values: dict[tuple[int, str], int] = {}
    data, at = (info.data if info else b""), 0
    while at + 4 <= len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, at)
        if form == _SIZED and attribute in (_REGCOUNT, _FRAME_SIZE):
            symbol, value = struct.unpack_from("<II", data, at + 4)
            values[attribute, names[symbol]] = value
        at += 4 + (length if form == _SIZED else 0)
    kernels = [s.name.removeprefix(".text.") for s in found if s.name.startswith(".text.")]
    return {k: (values.get((_REGCOUNT, k), 0), values.get((_FRAME_SIZE, k), 0)) for k in kernels}


def _bytes(image: bytes, header: tuple) -> bytes:
    no_bits = header[1] == 8
    return b"" if no_bits else image[header[4] : header[4] + header[5]]


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode("utf-8", "replace")
