"""What a disk would hold after a power cut, told from the system calls that strace saw.

The strictest disk that POSIX allows: the bytes of a file survive if the file was synced after they were written, a name
survives if its folder was synced after the name was given, and nothing else does; a deletion that was not synced comes
back. A call that had not returned when the power went did nothing. `follow` reads a trace and goes through it call by
call, so that the power can be cut after each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

CALLS = (
    *("openat", "write", "pwrite64", "writev", "ftruncate", "sendfile", "copy_file_range"),
    *("fsync", "fdatasync", "rename", "renameat", "renameat2", "link", "linkat"),
    *("unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
)
SYNCS = ("fsync", "fdatasync")
STRACE = ("strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "10000000", "-e", f"trace={','.join(CALLS)}", "-o")

_LINE = re.compile(r"(\d+) +(.*)")
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)")
_HEX = r"((?:\\x[0-9a-f]{2})*)"
_STRING = re.compile(rf'"{_HEX}"')
_DESCRIPTOR = re.compile(rf"^\d+<{_HEX}>")


@dataclass
class File:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes | None = None
    begun: int = 0

    def begin_sync(self, number: int) -> Callable[[], None]:
        """What makes durable what is there now."""
        return partial(self._end_sync, number, bytes(self.data))

    def _end_sync(self, number: int, data: bytes) -> None:
        if number > self.begun:  # one that began earlier and took longer undoes nothing
            self.begun, self.synced = number, data


@dataclass
class Folder:
    entries: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    begun: int = 0

    def begin_sync(self, number: int) -> Callable[[], None]:
        return partial(self._end_sync, number, dict(self.entries))

    def _end_sync(self, number: int, entries: dict[str, File | Folder]) -> None:
        if number > self.begun:
            self.begun, self.synced = number, entries


class TracedDisk:
    """Everything below `root`, which is there before the program starts."""

    def __init__(self, root: Path) -> None:
        self.root = PurePosixPath(root)
        self.top = Folder()

    def follow(self, lines: Iterable[str]) -> Iterator[str]:
        """Each call below the root, once it is done. What a sync covers is what was there when it began."""
        begun: dict[str, str] = {}
        syncing: dict[str, Callable[[], None]] = {}
        for number, line in enumerate(lines, 1):
            if (parted := _LINE.match(line.rstrip("\n"))) is None:
                continue
            thread, text = parted.groups()
            if resumed := _RESUMED.match(text):
                text = begun.pop(thread, "") + resumed[1]
            elif text.startswith(SYNCS) and (node := self._node(_path_of_descriptor(text.partition("(")[2]))):
                syncing[thread] = node.begin_sync(number)
            if text.endswith(_UNFINISHED):
                begun[thread] = text.removesuffix(_UNFINISHED)
            elif (call := _CALL.match(text)) and int(call[3]) >= 0:
                name, arguments = call[1], call[2]
                if name in SYNCS and thread in syncing:
                    syncing.pop(thread)()
                elif name in SYNCS or not self._apply(name, arguments, int(call[3])):
                    continue
                yield f"{name} {_path_of_descriptor(arguments) or _strings(arguments)}"

    def _apply(self, name: str, arguments: str, result: int) -> bool:
        """Does what the call did; False where it is none of ours."""
        if name in ("write", "writev", "pwrite64", "ftruncate", "sendfile", "copy_file_range"):
            return self._write(name, arguments, result)
        paths = [path for path in map(self._inside, _strings(arguments)) if path is not None]
        if not paths:
            return False
        if name == "openat":
            return self._open(paths[0], arguments)
        if name.startswith("mkdir"):
            self._put(paths[0], Folder())
        elif name.startswith("rename"):
            self._put(paths[1], self._take(paths[0]))
        elif name.startswith(("unlink", "rmdir")):
            self._take(paths[0])
        else:
            raise AssertionError(f"{name} is not known to this disk")
        return True

    def _open(self, path: PurePosixPath, arguments: str) -> bool:
        node = self._node(self.root / path)
        if node is None and "O_CREAT" in arguments:
            self._put(path, File())
        elif isinstance(node, File) and "O_TRUNC" in arguments:
            node.data.clear()
        else:
            return False
        return True

    def _write(self, name: str, arguments: str, result: int) -> bool:
        node = self._node(_path_of_descriptor(arguments))
        if not isinstance(node, File):
            return False
        assert name == "write", f"{name} is not known to this disk"
        found = _STRING.search(arguments)
        assert found is not None
        node.data += _bytes(found[1])[:result]
        return True

    def _inside(self, path: str) -> PurePosixPath | None:
        whole = PurePosixPath(path)
        return whole.relative_to(self.root) if whole.is_relative_to(self.root) and whole != self.root else None

    def _node(self, path: PurePosixPath | str | None) -> File | Folder | None:
        if path is None or not PurePosixPath(path).is_relative_to(self.root):
            return None
        node: File | Folder | None = self.top
        for part in PurePosixPath(path).relative_to(self.root).parts:
            node = node.entries.get(part) if isinstance(node, Folder) else None
        return node

    def _put(self, path: PurePosixPath, node: File | Folder) -> None:
        folder = self._node(self.root / path.parent)
        assert isinstance(folder, Folder), path
        folder.entries[path.name] = node

    def _take(self, path: PurePosixPath) -> File | Folder:
        folder = self._node(self.root / path.parent)
        assert isinstance(folder, Folder), path
        return folder.entries.pop(path.name)

    def surviving(self) -> dict[str, bytes | None]:
        """Files by their path below the root, with their bytes; None for one that has a name and no bytes."""
        return dict(_surviving(self.top, ""))

    def restore(self, folder: Path) -> None:
        """Writes what survives into an empty folder, and the folders that do."""
        for name in _surviving_folders(self.top, ""):
            (folder / name).mkdir()
        for name, data in self.surviving().items():
            (folder / name).write_bytes(data or b"")


def _surviving(folder: Folder, at: str) -> Iterator[tuple[str, bytes | None]]:
    for name, node in folder.synced.items():
        if isinstance(node, File):
            yield at + name, node.synced
        else:
            yield from _surviving(node, f"{at}{name}/")


def _surviving_folders(folder: Folder, at: str) -> Iterator[str]:
    for name, node in folder.synced.items():
        if isinstance(node, Folder):
            yield at + name
            yield from _surviving_folders(node, f"{at}{name}/")


def _strings(arguments: str) -> list[str]:
    return [_bytes(found).decode(errors="replace") for found in _STRING.findall(arguments)]


def _path_of_descriptor(arguments: str) -> str | None:
    found = _DESCRIPTOR.match(arguments)
    return _bytes(found[1]).decode(errors="replace") if found else None


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))
