"""Which Vulkan runtime an ELF file (a program, a shared library) has inside. The file is read, never loaded.

A program built ahead of time has the runtime of its generator in it and looks nothing up, so the dynamic linker knows
nothing of it. Its symbols do, where they were not stripped: `halide_vulkan_run` is in every runtime,
`halide_vulkan_get_stats` in ours alone. Where they were, the strings of the runtime are still there: ours looks its
registry up by name and has an option that no other has. A libHalide that is part of a file carries its runtime as
bitcode, whose table of names can be read as it is.
"""

import struct
from typing import Iterator, List, NamedTuple, Set

from . import _library

OURS, STOCK, NONE, UNKNOWN = "ours", "stock", "none", "unknown"

_PROGBITS, _SYMTAB, _DYNSYM = 1, 2, 11
_RUN, _STATS = b"halide_vulkan_run", b"halide_vulkan_get_stats"
_STRINGS_OF_OURS = (_library.REGISTRY.encode(), b"HL_VK_COPY_THREADS")
_ENTRY = b"vkGetInstanceProcAddr"  # whoever opens the Vulkan loader by itself asks for it by this name
_STRINGS_OF_STOCK = (b"HL_VK_DEVICE_TYPE", _ENTRY)


class Held(NamedTuple):
    runtime: str  # OURS, STOCK, NONE or UNKNOWN
    how: str  # how it is held, or why it is not known


class _Section(NamedTuple):
    kind: int
    content: bytes
    link: int


def _sections(content: bytes) -> List[_Section]:
    """ValueError where the file has none: it is no ELF file, or one that was packed."""
    if content[:4] != b"\x7fELF" or content[4] not in (1, 2) or content[5] not in (1, 2):
        raise ValueError("no ELF file")
    wide, order = content[4] == 2, "<" if content[5] == 1 else ">"
    try:
        table = struct.unpack_from(order + ("Q" if wide else "I"), content, 40 if wide else 32)[0]
        size, count = struct.unpack_from(order + "HH", content, 58 if wide else 46)
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize
        form = order + ("IIQQQQIIQQ" if wide else "10I")
        rows = [struct.unpack_from(form, content, table + i * size) for i in range(count)]
    except struct.error as error:
        raise ValueError("an ELF file that is cut short") from error
    if not rows:
        raise ValueError("an ELF file without sections: it was packed, or stripped of them")
    return [_Section(row[1], content[row[4] : row[4] + row[5]], row[6]) for row in rows]


def _defined(content: bytes, sections: List[_Section]) -> Iterator[bytes]:
    """The names of the symbols that the file itself defines."""
    wide, order = content[4] == 2, "<" if content[5] == 1 else ">"
    form = order + ("IBBHQQ" if wide else "IIIBBH")
    for section in sections:
        if section.kind not in (_SYMTAB, _DYNSYM) or section.link >= len(sections):
            continue
        names = sections[section.link].content
        whole = len(section.content) - len(section.content) % struct.calcsize(form)
        for symbol in struct.iter_unpack(form, section.content[:whole]):
            if symbol[3 if wide else 5]:
                yield names[symbol[0] : names.find(b"\0", symbol[0])]


def _look(content: bytes) -> Held:
    sections = _sections(content)
    if not any(text in content for text in (_RUN, _library.BITCODE.encode(), _ENTRY)):
        return Held(NONE, "has no Vulkan runtime of Halide inside")
    data = [section.content for section in sections if section.kind == _PROGBITS]

    def has(*texts: bytes) -> bool:
        return all(any(text in one for one in data) for text in texts)

    names: Set[bytes] = set(_defined(content, sections))
    if _STATS in names:
        return Held(OURS, "has this runtime inside")
    if _RUN in names:
        return Held(STOCK, "has Halide's own Vulkan runtime inside")
    if _library.BITCODE.encode() in names or has(_RUN):
        if has(_STATS):
            return Held(OURS, "has a Halide inside that carries this runtime")
        return Held(STOCK, "has a Halide inside that carries its own Vulkan runtime")
    if has(*_STRINGS_OF_OURS):
        return Held(OURS, "has this runtime inside, by its strings: its symbols are stripped")
    if has(*_STRINGS_OF_STOCK):
        return Held(STOCK, "has Halide's own Vulkan runtime inside, by its strings: its symbols are stripped")
    # A loader, a driver or a layer defines such a function; a program that is linked with the loader has no string.
    if has(_ENTRY) and not any(b"GetInstanceProcAddr" in name for name in names):
        if not any(section.kind == _SYMTAB for section in sections):
            return Held(UNKNOWN, "opens the Vulkan loader, but is stripped and has the strings of no runtime we know")
    return Held(NONE, "has no Vulkan runtime of Halide inside")


def held_by(file: str) -> Held:
    try:
        with open(file, "rb") as opened:
            head = opened.read(4)
            if head != b"\x7fELF":
                return Held(NONE, "is no ELF file")
            return _look(head + opened.read())
    except (OSError, ValueError) as error:
        return Held(UNKNOWN, f"cannot be looked into: {error}")
