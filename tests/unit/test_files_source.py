"""The `files` source: what each format becomes, in which order, under which number, at which pace."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from inspectd.camera import Ended, Grab, Nothing, Picture, Pixels, Unreadable
from inspectd.camera.files import FILE_BYTES_MAX, Files, list_pictures, read_picture
from inspectd.errors import SourceError

GREEN, BROWN = (0, 255, 0), (50, 100, 200)
LOSSLESS = {".png": [], ".bmp": [], ".tiff": [], ".webp": [cv2.IMWRITE_WEBP_QUALITY, 101]}
TRUNCATABLE = {
    "baseline.jpg": [],
    "progressive.jpg": [cv2.IMWRITE_JPEG_PROGRESSIVE, 1],
    "restarts.jpg": [cv2.IMWRITE_JPEG_RST_INTERVAL, 4],
    "plain.png": [],
    "plain.bmp": [],
    "none.tiff": [cv2.IMWRITE_TIFF_COMPRESSION, 1],
    "lzw.tiff": [cv2.IMWRITE_TIFF_COMPRESSION, 5],
    "jpeg.tiff": [cv2.IMWRITE_TIFF_COMPRESSION, 7],
    "deflate.tiff": [cv2.IMWRITE_TIFF_COMPRESSION, 8],
    "lossy.webp": [cv2.IMWRITE_WEBP_QUALITY, 80],
    "lossless.webp": [cv2.IMWRITE_WEBP_QUALITY, 101],
}


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def clock(self) -> float:
        return self.now_s

    def wait(self, for_s: float) -> None:
        self.now_s += for_s


def marked(height_px: int = 32, width_px: int = 48) -> Pixels:
    """Brown, with a green corner at the top left."""
    pixels = np.full((height_px, width_px, 3), BROWN, np.uint8)
    pixels[:8, :8] = GREEN
    return pixels


def noise() -> Pixels:
    pixels = np.random.default_rng(1).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    return np.asarray(cv2.GaussianBlur(pixels, (0, 0), 2), np.uint8)


def encoded(ending: str, pixels: NDArray[np.uint8 | np.uint16 | np.float32], options: list[int] | None = None) -> bytes:
    ok, data = cv2.imencode(ending, pixels, options or [])
    assert ok
    return bytes(data.tobytes())


def stored(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def exif(orientation: int) -> bytes:
    """Big-endian TIFF structure with the one tag 0x0112."""
    return b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def with_exif(jpeg: bytes, orientation: int) -> bytes:
    body = b"Exif\0\0" + exif(orientation)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


def png(width_px: int, height_px: int, bits: int, colour: int, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """Write a PNG from its raw rows (each with its filter byte), with more chunks before the pixels."""
    head = struct.pack(">IIBBBBB", width_px, height_px, bits, colour, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


def tiff(grey: NDArray[np.uint16], orientation: int) -> bytes:
    """Write an uncompressed big-endian 16-bit grey TIFF."""
    height_px, width_px = grey.shape
    tags = {256: width_px, 257: height_px, 258: 16, 259: 1, 262: 1, 273: 8, 274: orientation, 277: 1, 278: height_px}
    tags[279] = grey.nbytes
    entries = b"".join(struct.pack(">HHII", tag, 4, 1, value) for tag, value in tags.items())
    # SHORT values stand in the upper half of their field; BitsPerSample and Orientation must be SHORT.
    for tag in (258, 259, 262, 274, 277):
        entries = entries.replace(
            struct.pack(">HHII", tag, 4, 1, tags[tag]), struct.pack(">HHIHH", tag, 3, 1, tags[tag], 0)
        )
    pixels = grey.astype(">u2").tobytes()
    return b"MM\0*" + struct.pack(">I", 8 + len(pixels)) + pixels + struct.pack(">H", len(tags)) + entries + b"\0" * 4


def source(path: Path, *, fps: float | None = None, loop: bool = False, time: Time | None = None) -> Files:
    time = time or Time()
    return Files("top", path, fps=fps, loop=loop, lossless=fps is None, clock=time.clock, wait=time.wait)


def numbered(folder: Path, count: int) -> Path:
    """Store pictures of which the n-th is n px wide (counted from 1)."""
    for number in range(1, count + 1):
        stored(folder / f"{number}.png", encoded(".png", np.zeros((2, number, 3), np.uint8)))
    return folder


def width(grab: Grab) -> int:
    assert isinstance(grab, Picture)
    return int(grab.pixels.shape[1])


@pytest.mark.parametrize("ending", LOSSLESS)
def test_lossless_formats_come_back_as_they_were(tmp_path: Path, ending: str) -> None:
    """8-bit BGR is handed over unchanged: uint8, three channels, contiguous."""
    pixels = noise()
    read = read_picture(stored(tmp_path / f"a{ending}", encoded(ending, pixels, LOSSLESS[ending])))
    assert np.array_equal(read, pixels)
    assert read.dtype == np.uint8
    assert read.flags.c_contiguous


def test_jpeg_comes_back_nearly_as_it_was(tmp_path: Path) -> None:
    read = read_picture(stored(tmp_path / "a.jpg", encoded(".jpg", marked(), [cv2.IMWRITE_JPEG_QUALITY, 95])))
    assert np.abs(read[20, 20].astype(int) - BROWN).max() <= 4


@pytest.mark.parametrize("ending", [".png", ".jpg", ".bmp", ".tiff", ".webp"])
def test_grey_becomes_three_equal_channels(tmp_path: Path, ending: str) -> None:
    grey = noise()[:, :, 0]
    read = read_picture(stored(tmp_path / f"a{ending}", encoded(ending, grey, LOSSLESS.get(ending))))
    assert read.shape == (*grey.shape, 3)
    assert np.array_equal(read[..., 0], read[..., 1])
    assert np.array_equal(read[..., 0], read[..., 2])


@pytest.mark.parametrize("ending", [".png", ".bmp", ".webp"])
@pytest.mark.parametrize("alpha", [1, 64, 255])
def test_alpha_is_dropped_and_not_blended(tmp_path: Path, ending: str, alpha: int) -> None:
    """What is behind a picture is nobody's business: the colour stays, however transparent it was."""
    bgra = np.dstack([marked(), np.full((32, 48), alpha, np.uint8)])
    read = read_picture(stored(tmp_path / f"a{ending}", encoded(ending, bgra, LOSSLESS[ending])))
    assert np.array_equal(read, marked())


@pytest.mark.parametrize("ending", [".png", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_16_bit_is_shifted_by_8_and_never_stretched(tmp_path: Path, ending: str, channels: int) -> None:
    """A dark 16-bit picture stays dark: stretching by its own minimum and maximum would hide and invent defects."""
    wide = np.random.default_rng(1).integers(0, 3000, (20, 30, channels), dtype=np.uint16)
    read = read_picture(stored(tmp_path / f"a{ending}", encoded(ending, wide[..., 0] if channels == 1 else wide)))
    assert np.array_equal(read, np.broadcast_to(wide[..., :3], (20, 30, 3)) >> 8)
    assert read.dtype == np.uint8


def test_1_bit_and_palette_pictures_are_expanded(tmp_path: Path) -> None:
    bits = png(8, 2, 1, 0, b"\0\xf0\0\x0f")
    read = read_picture(stored(tmp_path / "bits.png", bits))
    assert read[:, :, 0].tolist() == [[255] * 4 + [0] * 4, [0] * 4 + [255] * 4]
    palette = png(2, 1, 8, 3, b"\0\1\0", (b"PLTE", bytes([200, 100, 50, 0, 255, 0])), (b"tRNS", b"\0\x80"))
    read = read_picture(stored(tmp_path / "palette.png", palette))
    assert read.tolist() == [[list(GREEN), list(BROWN)]]


@pytest.mark.parametrize(
    ("orientation", "corner"),
    list(enumerate([(0, 0), (0, -1), (-1, -1), (-1, 0), (0, 0), (0, -1), (-1, -1), (-1, 0)], start=1)),
)
def test_orientation_is_applied(tmp_path: Path, orientation: int, corner: tuple[int, int]) -> None:
    """EXIF 2.32, tag 0x0112: 1 to 4 keep the axes, 5 to 8 exchange them; the stored top left lands at `corner`."""
    grey = np.full((32, 48), 100 << 8, np.uint16)
    grey[:8, :8] = 200 << 8
    rows = b"".join(b"\0" + row.tobytes() for row in (grey >> 8).astype(np.uint8))
    kinds = {
        "a.jpg": with_exif(encoded(".jpg", (grey >> 8).astype(np.uint8)), orientation),
        "a.png": png(48, 32, 8, 0, rows, (b"eXIf", exif(orientation))),
        "a.tif": tiff(grey, orientation),
    }
    for name, data in kinds.items():
        read = read_picture(stored(tmp_path / name, data))
        assert read.shape == ((32, 48, 3) if orientation <= 4 else (48, 32, 3)), name
        for row, column in ((0, 0), (0, -1), (-1, -1), (-1, 0)):
            expected = 200 if (row, column) == corner else 100
            assert abs(int(read[row, column, 0]) - expected) <= 3, name


@pytest.mark.parametrize("name", TRUNCATABLE)
def test_a_truncated_file_is_an_error_and_not_half_a_picture(tmp_path: Path, name: str) -> None:
    """OpenCV before 5 filled the missing rest of a JPEG with grey: a part was judged that nobody had seen."""
    data = encoded(Path(name).suffix, noise(), TRUNCATABLE[name])
    assert read_picture(stored(tmp_path / name, data)).shape == (240, 320, 3)
    for cut in (1, 3, 20, 100, *(len(data) * n // 10 for n in range(1, 10)), *(len(data) - n for n in (50, 12, 4, 1))):
        with pytest.raises(SourceError, match=r"truncated, damaged or|not a picture"):
            read_picture(stored(tmp_path / f"{cut}-{name}", data[:cut]))


@pytest.mark.parametrize("name", ["plain.png", "baseline.jpg", "progressive.jpg", "lzw.tiff"])
def test_a_file_whose_second_half_is_zeros_is_an_error(tmp_path: Path, name: str) -> None:
    """Such files lie on a disk after a power cut. BMP, plain TIFF and WebP cannot tell (docstring of the module)."""
    data = encoded(Path(name).suffix, noise(), TRUNCATABLE[name])
    half = len(data) // 2
    with pytest.raises(SourceError, match="truncated, damaged or"):
        read_picture(stored(tmp_path / name, data[:half] + bytes(len(data) - half)))


def test_each_unreadable_file_has_its_plain_reason(tmp_path: Path) -> None:
    huge = tmp_path / "huge.png"
    with huge.open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    many = png(40_000, 40_000, 8, 0, b"")
    cases = {
        tmp_path / "gone.png": "gone.png: the file is missing",
        stored(tmp_path / "empty.png", b""): "empty.png: the file is empty",
        stored(tmp_path / "text.png", b"hello, this is text"): "text.png: not a picture",
        huge: "huge.png: 256 MB, more than 256 MB",
        tmp_path: "cannot be read: Is a directory",
        stored(tmp_path / "many.png", many): "a PNG file, but .*: pixels <= CV_IO_MAX_IMAGE_PIXELS",
        stored(tmp_path / "float.tiff", encoded(".tiff", np.ones((4, 4, 3), np.float32))): "its samples are float32",
    }
    for path, reason in cases.items():
        with pytest.raises(SourceError, match=reason):
            read_picture(path)


def test_a_file_without_rights_says_so(tmp_path: Path) -> None:
    path = stored(tmp_path / "locked.png", encoded(".png", marked()))
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # root may read everything, so be somebody else for one moment
        os.seteuid(65534)
    try:
        with pytest.raises(SourceError, match=r"locked\.png: no right to read the file"):
            read_picture(path)
    finally:
        os.seteuid(user)


def test_a_folder_gives_its_pictures_in_natural_order(tmp_path: Path) -> None:
    """Numbers count as numbers, endings in any case; other, hidden and deeper files and folders are not pictures."""
    for name in ("b10.PNG", "b2.jpeg", "a.TIF", "B1.webp", "notes.txt", ".b3.png", "板3.bmp"):
        stored(tmp_path / name, b"x")
    (tmp_path / "deeper.png").mkdir()
    stored(tmp_path / "deeper.png" / "c.png", b"x")
    assert [path.name for path in list_pictures(tmp_path)] == ["a.TIF", "B1.webp", "b2.jpeg", "b10.PNG", "板3.bmp"]


def test_a_glob_goes_deeper_only_with_two_stars(tmp_path: Path) -> None:
    (tmp_path / "good" / "x").mkdir(parents=True)
    for name in ("good/1.png", "good/x/2.png", "0.png", "good/note.txt"):
        stored(tmp_path / name, b"x")

    def names(pattern: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in list_pictures(tmp_path / pattern)]

    assert names("*/*") == ["good/1.png"]
    assert names("**/*.png") == ["0.png", "good/1.png", "good/x/2.png"]
    assert names("good/1.png") == ["good/1.png"]


def test_a_folder_with_glob_letters_in_its_name_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "lot [1]"
    folder.mkdir()
    assert list_pictures(numbered(folder, 1)) == (folder / "1.png",)


@pytest.mark.parametrize("path", ["", "nowhere", "*.bmp"])
def test_nothing_to_show_is_refused_with_path_and_endings(tmp_path: Path, path: str) -> None:
    with pytest.raises(SourceError, match=r"top: no picture in .* \(looked for \.png, .*\); put pictures there"):
        source(tmp_path / path).open(1, 1)


def test_names_outside_ascii_and_outside_utf8_work(tmp_path: Path) -> None:
    """The name travels as JSON, so what is not UTF-8 is replaced in it; the picture is read all the same."""
    stored(tmp_path / "电路板 ä.png", encoded(".png", marked()))
    stored(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")), encoded(".png", marked()))
    files = source(tmp_path)
    files.open(0, 0)
    names = [grab.name for grab in (files.grab(0, 1), files.grab(1, 1)) if isinstance(grab, Picture)]
    assert names == [f"{tmp_path}/电路板 ä.png", f"{tmp_path}/\ufffd.png"]


def test_the_facts_come_from_the_first_picture_that_can_be_read(tmp_path: Path) -> None:
    stored(tmp_path / "0.png", b"broken")
    facts = source(numbered(tmp_path, 3), loop=True).open(1, 1)
    assert (facts.kind, facts.simulated, facts.finite) == ("files", True, False)
    assert (facts.width_px, facts.height_px) == (1, 2)
    assert source(tmp_path).open(1, 1).finite


def test_a_folder_of_unreadable_files_opens_and_gives_each_its_record(tmp_path: Path) -> None:
    stored(tmp_path / "0.png", b"broken")
    files = source(tmp_path)
    facts = files.open(1, 1)
    assert (facts.width_px, facts.height_px) == (1, 1)
    assert isinstance(files.grab(1, 1), Unreadable)
    assert isinstance(files.grab(2, 1), Ended)


def test_each_number_has_its_picture_once_and_then_the_source_ends(tmp_path: Path) -> None:
    """A size that changes between the files is no fault."""
    files = source(numbered(tmp_path, 12))
    files.open(501, 501)
    assert [width(files.grab(number, 1)) for number in range(501, 513)] == list(range(1, 13))
    assert files.grab(513, 1) == Ended()
    assert files.grab(513, 1) == Ended()


def test_a_loop_begins_again(tmp_path: Path) -> None:
    files = source(numbered(tmp_path, 3), loop=True)
    files.open(7, 7)
    assert [width(files.grab(number, 1)) for number in range(7, 15)] == [1, 2, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize("loop", [False, True])
def test_a_replaced_child_goes_on_after_the_last_number(tmp_path: Path, loop: bool) -> None:
    files = source(numbered(tmp_path, 5), loop=loop)
    files.open(first_frame_id=10, next_frame_id=13)
    assert [width(files.grab(number, 1)) for number in (13, 14)] == [4, 5]
    after = files.grab(15, 1)
    assert width(after) == 1 if loop else after == Ended()


def test_a_file_that_is_broken_or_vanishes_costs_its_number_only(tmp_path: Path) -> None:
    stored(numbered(tmp_path, 4) / "2.png", b"broken")
    files = source(tmp_path)
    files.open(1, 1)
    (tmp_path / "3.png").unlink()
    broken, vanished = files.grab(2, 1), files.grab(3, 1)
    assert isinstance(broken, Unreadable)
    assert broken.reason == "2.png: not a picture"
    assert isinstance(vanished, Unreadable)
    assert vanished.reason == "3.png: the file is missing"
    assert width(files.grab(4, 1)) == 4


def test_pictures_come_at_the_pace_of_a_camera(tmp_path: Path) -> None:
    """`fps` is a schedule: what reading takes does not add to the period."""
    time = Time()
    files = source(numbered(tmp_path, 4), fps=10, time=time)
    files.open(1, 1)
    seen_s = []
    for number in (1, 2, 3, 4):
        grab = files.grab(number, 1)
        assert isinstance(grab, Picture)
        seen_s.append(grab.captured_s)
        time.wait(0.03)
    assert seen_s == pytest.approx([100.0, 100.1, 100.2, 100.3])


def test_the_wait_ends_at_its_limit_and_the_same_number_comes_later(tmp_path: Path) -> None:
    time = Time()
    files = source(numbered(tmp_path, 2), fps=1, time=time)
    files.open(1, 1)
    assert width(files.grab(1, 0.4)) == 1
    assert files.grab(2, 0.4) == Nothing()
    assert files.grab(2, 0.4) == Nothing()
    assert time.now_s == pytest.approx(100.8)
    assert width(files.grab(2, 0.4)) == 2
    assert time.now_s == pytest.approx(101.0)


def test_after_a_pause_the_schedule_moves_and_no_burst_follows(tmp_path: Path) -> None:
    """A camera does not make up for pictures that nobody took."""
    time = Time()
    files = source(numbered(tmp_path, 4), fps=10, time=time)
    files.open(1, 1)
    files.grab(1, 1)
    time.wait(3.0)
    seen_s = []
    for number in (2, 3, 4):
        files.grab(number, 1)
        seen_s.append(time.now_s)
    assert seen_s == pytest.approx([103.0, 103.1, 103.2])


def test_lossless_never_waits(tmp_path: Path) -> None:
    """Its pace is that of whoever asks, also where `fps` says what the line's would be."""
    time = Time()
    files = Files("top", numbered(tmp_path, 3), fps=1, loop=False, lossless=True, clock=time.clock, wait=time.wait)
    files.open(1, 1)
    assert [width(files.grab(number, 1)) for number in (1, 2, 3)] == [1, 2, 3]
    assert time.now_s == 100.0
