"""The `video` source: which number has which picture, at which pace, and what damaged files become."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from tests.shared import shared
from tests.unit.config_case import Case, case, changed

from inspectd.camera import Ended, Grab, Nothing, Picture, Pixels, Unreadable
from inspectd.camera.video import Video
from inspectd.camera.videofile import ENDINGS, read_index
from inspectd.config.commands import check
from inspectd.config.onsite import VIDEO_ENDINGS
from inspectd.config.schema import Configuration
from inspectd.errors import SourceError

COUNT, FPS = 40, 12.5
KINDS = ("mp4v.mp4", "MJPG.avi", "XVID.avi", "mp4v.mkv", "MJPG.mkv", "FFV1.mkv")
BITS = 6


class Time:
    """A clock that waiting moves, and each look at it by `step_s`."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.step_s = step_s

    def clock(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def wait(self, for_s: float) -> None:
        self.now_s += for_s


def numbered(number: int) -> Pixels:
    """A picture that carries its own number as black and white fields over soft noise."""
    noise = np.random.default_rng(number).integers(0, 256, (96, 144, 3), dtype=np.uint8)
    pixels = np.asarray(cv2.GaussianBlur(noise, (0, 0), 2), np.uint8)
    for bit in range(BITS):
        pixels[:32, bit * 24 : bit * 24 + 24] = 255 if number >> bit & 1 else 0
    return pixels


def number_of(pixels: Pixels) -> int:
    return sum(1 << bit for bit in range(BITS) if pixels[4:28, bit * 24 + 4 : bit * 24 + 20].mean() > 128)


def clip(folder: Path, name: str = "MJPG.avi", count: int = COUNT) -> Path:
    """Write numbered pictures; the name's stem is the codec's FourCC."""
    path = folder / name
    codec = cv2.VideoWriter.fourcc(*path.stem)
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, codec, FPS, (144, 96))
    assert writer.isOpened()
    for number in range(count):
        writer.write(numbered(number))
    writer.release()
    return path


def source(
    path: Path,
    *,
    lossless: bool = True,
    loop: bool = False,
    time: Time | None = None,
    fps: float | None = None,
    max_fps: float | None = None,
) -> Video:
    time = time or Time()
    return Video("top", path, fps=fps, max_fps=max_fps, loop=loop, lossless=lossless, clock=time.clock, wait=time.wait)


def shown(grab: Grab) -> int | str:
    """Number of a picture, or why there is none."""
    if isinstance(grab, Unreadable):
        return grab.reason
    assert isinstance(grab, Picture)
    return number_of(grab.pixels)


def all_of(path: Path) -> list[int | str]:
    video = source(path)
    video.open(1, 1)
    found: list[int | str] = []
    while not isinstance(grab := video.grab(len(found) + 1, 1), Ended):
        found.append(shown(grab))
    video.close()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_number_has_its_picture_once_and_then_the_source_ends(tmp_path: Path, kind: str) -> None:
    assert all_of(clip(tmp_path, kind)) == list(range(COUNT))


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_child_goes_on_with_exactly_the_next_picture(tmp_path: Path, kind: str) -> None:
    """Whatever the codec's key pictures: the number decides, from every place."""
    path = clip(tmp_path, kind)
    for place in range(COUNT):
        video = source(path)
        video.open(first_frame_id=500, next_frame_id=500 + place)
        assert shown(video.grab(500 + place, 1)) == place
        video.close()


def test_a_child_that_is_replaced_after_the_last_picture_ends(tmp_path: Path) -> None:
    video = source(clip(tmp_path, count=3))
    video.open(10, 13)
    assert video.grab(13, 1) == Ended()
    assert video.grab(13, 1) == Ended()


def test_a_loop_begins_again_also_for_a_replaced_child(tmp_path: Path) -> None:
    path = clip(tmp_path, count=3)
    video = source(path, loop=True)
    assert not video.open(7, 7).finite
    assert [shown(video.grab(number, 1)) for number in range(7, 15)] == [0, 1, 2, 0, 1, 2, 0, 1]
    video.close()
    video = source(path, loop=True)
    video.open(7, 12)
    assert [shown(video.grab(number, 1)) for number in range(12, 15)] == [2, 0, 1]


def test_the_facts_and_names_say_where_a_picture_comes_from(tmp_path: Path) -> None:
    path = clip(tmp_path)
    video = source(path)
    facts = video.open(1, 1)
    assert (facts.kind, facts.simulated, facts.finite) == ("video", True, True)
    assert (facts.width_px, facts.height_px) == (144, 96)
    grab = video.grab(2, 1)
    assert isinstance(grab, Picture)
    assert grab.name == f"{path}#2"
    assert grab.pixels.dtype == np.uint8
    assert grab.pixels.flags.c_contiguous


@pytest.mark.parametrize(
    ("fps", "max_fps", "period_s"),
    [(None, None, 1 / FPS), (None, 5.0, 0.2), (None, 50.0, 1 / FPS), (2.0, None, 0.5), (2.0, 1.0, 1.0)],
)
def test_own_pace_is_the_files_rate_unless_another_is_given(
    tmp_path: Path, fps: float | None, max_fps: float | None, period_s: float
) -> None:
    time = Time()
    video = source(clip(tmp_path, count=4), lossless=False, time=time, fps=fps, max_fps=max_fps)
    video.open(1, 1)
    grabs = [video.grab(number, 10) for number in range(1, 5)]
    times_s = [grab.captured_s for grab in grabs if isinstance(grab, Picture)]
    assert np.diff(times_s) == pytest.approx([period_s] * 3)


def test_a_picture_that_is_not_due_is_nothing_and_loses_no_turn(tmp_path: Path) -> None:
    time = Time()
    video = source(clip(tmp_path, count=3), lossless=False, fps=1.0, time=time)
    video.open(1, 1)
    assert shown(video.grab(1, 0.1)) == 0
    assert [isinstance(video.grab(2, 0.3), Nothing) for _ in range(3)] == [True] * 3
    assert shown(video.grab(2, 0.3)) == 1
    assert time.now_s == pytest.approx(101.0)


def test_after_a_pause_the_pace_begins_again_without_a_burst(tmp_path: Path) -> None:
    time = Time()
    video = source(clip(tmp_path, count=4), lossless=False, fps=1.0, time=time)
    video.open(1, 1)
    video.grab(1, 1)
    time.now_s += 30
    video.grab(2, 1)
    assert isinstance(video.grab(3, 0.5), Nothing)


def test_a_long_way_to_a_picture_is_gone_in_steps(tmp_path: Path) -> None:
    """The child must read its messages meanwhile: one turn takes at most its time and one picture's decoding."""
    video = source(clip(tmp_path, "mp4v.mp4"), time=Time(step_s=0.4))
    video.open(1, 12)
    grabs = [video.grab(12, 1.0)]
    while isinstance(grabs[-1], Nothing):
        grabs.append(video.grab(12, 1.0))
    assert len(grabs) > 3
    assert shown(grabs[-1]) == 11


def test_a_damaged_picture_has_its_record_and_moves_no_other(tmp_path: Path) -> None:
    """The decoder leaves it out without a word: the next picture must not get its number."""
    path = clip(tmp_path, "MJPG.mkv")
    data = bytearray(path.read_bytes())
    heads = [match.start() for match in re.finditer(rb"\xff\xc0\x00\x11", data)]  # size and components of a JPEG
    data[heads[20] : heads[20] + 19] = bytes(19)
    path.write_bytes(data)
    found = all_of(path)
    assert found[20] == "picture 21 of 40 in MJPG.mkv: damaged, it cannot be decoded"
    assert found[:20] + found[21:] == [*range(20), *range(21, 40)]


@pytest.mark.parametrize("kind", ["MJPG.avi", "XVID.avi", "FFV1.avi"])
def test_a_cut_file_never_shows_half_a_picture(tmp_path: Path, kind: str) -> None:
    """An AVI's last packet may end anywhere, and decoders fill the rest with what they have."""
    path = clip(tmp_path, kind)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 6 // 10])
    found = all_of(path)
    assert 15 < len(found) < 30
    assert found[:-1] == list(range(len(found) - 1))
    assert str(found[-1]).endswith("the file is cut or damaged, its header promises 40 pictures")


def test_a_cut_matroska_shows_its_whole_pictures_and_says_that_more_were_promised(tmp_path: Path) -> None:
    path = clip(tmp_path, "mp4v.mkv")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 6 // 10])
    *whole, last = all_of(path)
    assert whole == list(range(len(whole)))
    assert "its header promises 40 pictures" in str(last)


def test_pictures_at_uneven_times_keep_their_numbers(tmp_path: Path) -> None:
    """Phones and recorders write varying rates: several pictures then lie within one period of the mean rate."""
    path = clip(tmp_path, "MJPG.mkv")
    data = bytearray(path.read_bytes())
    blocks = list(re.finditer(rb"\x81(..)[\x00\x80](?=\xff\xd8)", data, re.DOTALL))
    assert len(blocks) == COUNT
    for number, block in enumerate(blocks):
        # 80 ms apart as written; now 150 and 10 in turn
        data[block.start(1) : block.end(1)] = struct.pack(">H", int.from_bytes(block[1]) + number % 2 * 70)
    path.write_bytes(data)
    assert set(np.diff(read_index(path).stamps_us)) == {10_000, 150_000}
    assert all_of(path) == list(range(COUNT))
    video = source(path)
    video.open(1, 31)
    assert shown(video.grab(31, 1)) == 30


def test_rotation_is_applied(tmp_path: Path) -> None:
    """ISO 14496-12, track header: a matrix says how the camera was held."""
    path = clip(tmp_path, "mp4v.mp4", count=2)
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 44
    assert struct.unpack_from(">9i", data, matrix)[:5] == (65536, 0, 0, 0, 65536)
    struct.pack_into(">9i", data, matrix, 0, 65536, 0, -65536, 0, 0, 96 << 16, 0, 1 << 30)
    path.write_bytes(data)
    video = source(path)
    facts = video.open(1, 1)
    video.grab(1, 1)
    grab = video.grab(2, 1)
    assert isinstance(grab, Picture)
    assert (facts.width_px, facts.height_px) == (96, 144)
    assert grab.pixels.shape == (144, 96, 3)
    assert number_of(np.asarray(cv2.rotate(grab.pixels, cv2.ROTATE_90_COUNTERCLOCKWISE), np.uint8)) == 1


def test_a_percent_sign_in_a_name_is_no_series_of_pictures(tmp_path: Path) -> None:
    clip(tmp_path, count=2).rename(tmp_path / "lot%03d.avi")
    assert all_of(tmp_path / "lot%03d.avi") == [0, 1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b"", "the file is empty"),
        (b"hello, this is text", "not a video that OpenCV can open"),
    ],
)
def test_what_is_no_video_is_refused_with_its_reason(tmp_path: Path, data: bytes | None, reason: str) -> None:
    path = tmp_path / "x.mp4"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(SourceError, match=reason):
        source(path).open(1, 1)


def test_an_mp4_without_its_index_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = clip(tmp_path, "mp4v.mp4")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(SourceError, match=r"cut \(an \.mp4 has its index at its end\).*copy it again"):
        source(path).open(1, 1)


@pytest.mark.shared
def test_pictures_that_are_stored_in_another_order_keep_the_order_of_showing() -> None:
    """Real H.264 with pictures that lean on later ones; each place is reached directly and by going through."""
    path = shared("data/moving/bottle-detection.mp4")
    video = source(path)
    video.open(1, 1)
    sums = {}
    for number in range(1, 301):
        grab = video.grab(number, 1)
        assert isinstance(grab, Picture)
        sums[number] = grab.pixels.sum()
    assert len(read_index(path).stamps_us) == 1189
    for number in (2, 18, 251, 252, 267, 300):
        video = source(path)
        video.open(1, number)
        grab = video.grab(number, 10)
        assert isinstance(grab, Picture)
        assert grab.pixels.sum() == sums[number]


def checked(line3: Case, *source: str) -> list[str]:
    """What `inspectd check` prints, with one camera for each source; `{}` is the folder."""
    cameras = "".join(f"  cam{number}: {{source: {text}, models: [defects]}}\n" for number, text in enumerate(source))
    old = "  top:\n    source: {kind: simulator}\n    fps: 30\n    deadline_ms: 300\n    models: [defects]\n"
    line3.write(changed(old, cameras))
    _, said = check(line3.file, None, {"HOME": "/home/line"})
    return [line.replace(f"{line3.folder}/", "") for line in said.splitlines()]


def test_check_tells_a_videos_size_and_its_own_rate(tmp_path: Path) -> None:
    """Its file is no device, so that it may be opened."""
    clip(tmp_path)
    said = checked(case(tmp_path), "{kind: video, path: MJPG.avi}")
    assert "  camera cam0: 12 slots × 144 × 96 × 3 = 0 MB" in said
    assert any("load 1 × 12.5 pictures/s" in line for line in said)


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("gone.mp4", None, "gone.mp4 cannot be read by user id"),
        ("empty.mp4", b"", "empty.mp4 is empty; copy the video again"),
        ("text.mp4", b"hello", "text.mp4: not a video that OpenCV can open"),
        ("clip.gif", b"GIF89a", "clip.gif is no video; give a file that ends in .mp4 .avi .mkv"),
    ],
)
def test_check_finds_a_video_that_cannot_be_played(tmp_path: Path, name: str, data: bytes | None, what: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    fault, count = checked(case(tmp_path), f"{{kind: video, path: {name}}}")
    assert fault.startswith(f"inspectd.yaml:11: cameras.cam0.source.path: {what}")
    assert count == "1 fault"


def test_two_cameras_on_one_video_are_a_fault(tmp_path: Path) -> None:
    """As with folders: a device serves one camera."""
    clip(tmp_path)
    fault, _ = checked(case(tmp_path), "{kind: video, path: MJPG.avi}", "{kind: video, path: models/../MJPG.avi}")
    assert fault.startswith("inspectd.yaml:12: cameras.cam1.source.path: camera cam0 has the same path (MJPG.avi)")


def test_a_camera_without_a_rate_may_only_show_a_video_that_has_its_own(tmp_path: Path) -> None:
    clip(tmp_path)
    fault, _ = checked(case(tmp_path), "{kind: video, path: MJPG.avi, pace: fps}")
    assert "cameras.cam0.fps: is missing" in fault


def test_check_and_the_source_agree_on_what_a_video_is() -> None:
    """`config` may not import OpenCV into main, so it has the list once more."""
    assert VIDEO_ENDINGS == ENDINGS


@pytest.mark.parametrize(
    ("source", "fps", "max_fps", "supply_fps", "expected_fps"),
    [
        ({}, None, None, None, None),
        ({}, 30.0, None, None, 30.0),
        ({}, 30.0, 30.0, None, 30.0),
        ({"fps": 5.0}, None, None, 5.0, 5.0),
        ({"fps": 50.0}, 30.0, 40.0, 40.0, 40.0),
        ({"pace": "fps"}, 30.0, None, 30.0, 30.0),
        ({"pace": "lossless"}, 30.0, None, None, None),
    ],
)
def test_a_video_keeps_its_own_rate_unless_another_is_given(
    source: dict[str, object], fps: float | None, max_fps: float | None, supply_fps: float | None, expected_fps: float
) -> None:
    """The camera's `fps` is what is expected of it, and its pace only under `pace: fps`."""
    camera = {
        "source": {"kind": "video", "path": "x.mp4", **source},
        "fps": fps,
        "max_fps": max_fps,
        "models": ["m"],
    }
    station = dict.fromkeys(("enterprise", "site", "area", "line", "id"), "x")
    models = {"m": {"task": "detect", "path": "m.xml"}}
    configuration = Configuration.model_validate(
        {"version": 1, "station": station, "cameras": {"top": camera}, "models": models}
    )
    assert configuration.cameras["top"].supply_fps == supply_fps
    assert configuration.cameras["top"].expected_fps == expected_fps
