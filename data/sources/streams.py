"""Files of any size as blocks of bytes or of whole lines, decompressed on the way."""

import bz2
import gzip
import lzma
import zlib

from configs.errors import InputError

# Larger blocks are no faster, and their holes in the heap add up to a hundred megabytes.
BLOCK = 1 << 15
# Of one document or one line. A larger one is a file without the marks that end documents,
# and would be held in memory whole.
LARGEST_DOCUMENT = 64 << 20

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSED = (*_OPENERS, ".zst")


def read_blocks(path, progress=None):
    """Yield the decompressed bytes of a file in blocks; the suffix says how it is compressed.

    Args:
        path: a Path.
        progress: called after each block with the bytes of the file itself read so far.

    Raises:
        InputError: the file cannot be read, or its archive is broken or cut short.
    """
    try:
        with open(path, "rb") as file:
            if path.suffix in COMPRESSED and not path.stat().st_size:
                # Python's gzip takes it for an archive of nothing.
                raise EOFError("the archive has no bytes")
            for block in _decompress(file, path.suffix):
                yield block
                if progress:
                    progress(file.tell())
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, f"cannot be read ({error})", "copy the file again") from None


def _decompress(file, suffix):
    if suffix == ".zst":
        return _zstd_blocks(file)
    stream = _OPENERS[suffix](file) if suffix in _OPENERS else file
    return iter(lambda: stream.read(BLOCK), b"")


def _zstd_blocks(file):
    # The library's own reader takes a cut archive for a whole one, hence frame by frame.
    import zstandard

    frame = None
    # Small blocks in, since a block may unpack to many times its size.
    for packed in iter(lambda: file.read(BLOCK >> 2), b""):
        while packed:
            # Archives of --long=31 need the largest window.
            frame = frame or zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
            try:
                unpacked = frame.decompress(packed)
            except zstandard.ZstdError as error:
                raise OSError(error) from None
            yield from (unpacked[begin:begin + BLOCK] for begin in range(0, len(unpacked), BLOCK))
            packed = frame.unused_data
            if frame.eof:
                frame = None
    if frame:
        raise EOFError("the archive ends in the middle")


def read_lines(path, blocks):
    """Yield ``(number of the first line, text)`` of pieces that are made of whole lines.

    Only ``\\n`` and ``\\r\\n`` end a line: U+2028 and the like are text. Both read as ``\\n``.

    Raises:
        InputError: bytes that are no UTF-8 text, with the line, or a line without end.
    """
    number, rest = 1, []
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            lines = b"".join([*rest, block[:end]])
            yield number, _decode(path, number, lines)
            number, rest, block = number + lines.count(b"\n"), [], block[end:]
        rest.append(block)
        check_size(f"{path}:{number}", sum(map(len, rest)))
    yield number, _decode(path, number, b"".join(rest))


def check_size(place, size):
    """Raise InputError if a document or line of ``size`` is too large to be one."""
    if size > LARGEST_DOCUMENT:
        raise InputError(place, f"a document of more than {LARGEST_DOCUMENT >> 20} MiB begins",
                         "put a blank line between documents, or cut it into several")


def _decode(path, number, lines):
    try:
        position = lines.find(b"\0")
        if position < 0:
            # A byte order mark may only begin the file.
            text = lines.decode("utf-8-sig" if number == 1 else "utf-8")
            return text.replace("\r\n", "\n") if b"\r" in lines else text
        problem = "zero, as in no text"
        mend = "give UTF-8 text; a compressed file needs its suffix, " + " ".join(COMPRESSED)
    except UnicodeDecodeError as error:
        lines, position = error.object, error.start
        problem, mend = "not UTF-8", "convert the file to UTF-8"
    line = number + lines.count(b"\n", 0, position)
    byte = position - lines.rfind(b"\n", 0, position) - 1
    raise InputError(f"{path}:{line}", f"byte {byte} of the line is {problem}", mend)
