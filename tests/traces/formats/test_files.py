"""Files as they lie: what counts as a trace, what a file unpacks to, and where limits are."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from commsim.errors import TraceError
from commsim.traces.formats import files
from commsim.traces.formats.files import Document, FileLimits, documents, find_files, is_tar

ROOMY = FileLimits(unpacked=2**20, ratio=200, free=2**20, members=100)


def archive(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read(tmp_path: Path, data: bytes, limits: FileLimits = ROOMY) -> list[tuple[str, bytes, bool]]:
    path = tmp_path / "x"
    path.write_bytes(data)
    return [(d.name.removeprefix(str(path)), bytes(d.data), d.cut) for d in documents(path, limits)]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.json", True), ("A.JSON", True), ("a.json.gz", True), ("a.tgz", True), ("a.et", True),
        ("a.txt", False), ("json", False), (".a.json", False), ("rank0", True), ("rank_12", True),
        ("run_rank3", True), ("rank", False), ("rank0x", False), (".rank0", False),
        ("x_results.db", True), ("x.db", False),
    ],
)  # fmt: skip
def test_a_folder_is_searched_for_names_of_traces(name: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).touch()
    (tmp_path / "in" / "folder.json").mkdir()
    if found:
        assert find_files([tmp_path]) == [tmp_path / "in" / name]
    else:
        with pytest.raises(TraceError, match="no trace in this folder"):
            find_files([tmp_path])


def test_files_come_as_given_and_those_of_a_folder_sorted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("in/b.json", "in/a.json", "z.odd"):
        (tmp_path / name).touch()
    given: list[str | Path] = [str(tmp_path / "z.odd"), tmp_path / "in"]
    assert find_files(given) == [
        tmp_path / "z.odd",
        tmp_path / "in/a.json",
        tmp_path / "in/b.json",
    ]
    with pytest.raises(TraceError, match="there is no such file"):
        find_files([tmp_path / "none.json"])


def test_a_tar_says_ustar_at_byte_257() -> None:
    assert is_tar(bytes(257) + b"ustar")
    assert is_tar(bytes(257) + b"ustar\x0000")
    assert not is_tar(bytes(256) + b"ustar")
    assert not is_tar(bytes(258) + b"ustar")
    assert not is_tar(bytes(257) + b"usta")


def test_limits_are_far_above_what_traces_have() -> None:
    gib, mib = 2**30, 2**20
    assert FileLimits() == FileLimits(unpacked=8 * gib, ratio=200, free=64 * mib, members=100_000)


@pytest.mark.parametrize("data", [b"", b"x", b"{}", bytes(300), b"x" * 5000])
def test_plain_and_packed_files_are_one_document(data: bytes, tmp_path: Path) -> None:
    assert read(tmp_path, data) == [("", data, False)]
    assert read(tmp_path, gzip.compress(data)) == [("", data, False)]
    path = tmp_path / "x"
    path.write_bytes(data)
    assert list(documents(path)) == [Document(str(path), bytearray(data))]


def test_members_of_a_gzip_follow_each_other_and_what_else_follows_is_nothing(
    tmp_path: Path,
) -> None:
    one, other = gzip.compress(b"one,"), gzip.compress(b"other")
    assert read(tmp_path, one + other) == [("", b"one,other", False)]
    assert read(tmp_path, one + b"rest" + other) == [("", b"one,", False)]
    assert read(tmp_path, one + bytes(8)) == [("", b"one,", False)]


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_gzip_member_may_begin_at_the_end_of_a_block(
    more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = gzip.compress(b"one,"), gzip.compress(b"other")
    monkeypatch.setattr(files, "_BLOCK", len(one) + more)
    assert read(tmp_path, one + other) == [("", b"one,other", False)]


@pytest.mark.parametrize("block", [2, 7, 2**20])
def test_blocks_of_any_size_unpack_alike(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    text = bytes(range(256)) * 2
    whole, whole_packed = archive(("a.json", text)), gzip.compress(text)
    assert read(tmp_path, text) == [("", text, False)]
    assert read(tmp_path, whole_packed + whole_packed) == [("", text * 2, False)]
    assert read(tmp_path, whole) == [(":a.json", text, False)]
    assert read(tmp_path, whole_packed[:-9])[0][2]


def test_a_gzip_that_ends_early_is_cut(tmp_path: Path) -> None:
    packed = gzip.compress(b"abc" * 100)
    ((_, data, cut),) = read(tmp_path, packed[:-9])
    assert cut
    assert (b"abc" * 100).startswith(data)
    assert read(tmp_path, packed[:-1]) == [("", b"abc" * 100, True)]
    assert read(tmp_path, packed) == [("", b"abc" * 100, False)]
    assert read(tmp_path, packed[:2])[0][1:] == (b"", True)


def test_a_gzip_that_is_none_is_refused_and_one_damaged_later_is_cut(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not a readable gzip file"):
        read(tmp_path, b"\x1f\x8b" + b"x" * 30)
    good = gzip.compress(b"good")
    assert read(tmp_path, good + b"\x1f\x8b" + b"x" * 30) == [("", b"good", True)]


def test_a_plain_file_may_be_as_large_as_the_limit(tmp_path: Path) -> None:
    limits = FileLimits(unpacked=1000, ratio=1, free=0)
    assert read(tmp_path, bytes(1000), limits) == [("", bytes(1000), False)]
    with pytest.raises(TraceError, match=r"unpacks to more than 1000 B"):
        read(tmp_path, bytes(1001), limits)


def test_a_limit_at_the_end_of_a_block_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 4 come to 264 before the byte that is too many."""
    monkeypatch.setattr(files, "_BLOCK", 4)
    limits = FileLimits(unpacked=264)
    assert read(tmp_path, bytes(264), limits) == [("", bytes(264), False)]
    with pytest.raises(TraceError, match=r"unpacks to more than 264 B"):
        read(tmp_path, bytes(265), limits)


def test_a_packed_file_may_be_so_many_times_itself_and_free_bytes_beside(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(1000))
    free = 1000 - 3 * len(packed)
    assert read(tmp_path, packed, FileLimits(ratio=3, free=free)) == [("", bytes(1000), False)]
    with pytest.raises(TraceError, match=r"unpacks to more than 999 B"):
        read(tmp_path, packed, FileLimits(ratio=3, free=free - 1))
    assert read(tmp_path, packed, FileLimits(unpacked=1000, free=5000)) == [
        ("", bytes(1000), False)
    ]
    with pytest.raises(TraceError, match=r"unpacks to more than 999 B"):
        read(tmp_path, packed, FileLimits(unpacked=999, free=5000))


def test_packed_bytes_count_once_however_many_members_they_are(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(100)) * 10
    free = 1000 - 2 * len(packed)
    assert read(tmp_path, packed, FileLimits(ratio=2, free=free)) == [("", bytes(1000), False)]
    with pytest.raises(TraceError, match="unpacks to more than 999 B"):
        read(tmp_path, packed, FileLimits(ratio=2, free=free - 1))


def test_an_archive_yields_its_files(tmp_path: Path) -> None:
    inner = gzip.compress(b"zipped")
    data = archive(("a.json", b"{}"), ("in/b.json.gz", inner), ("._a.json", b"mac"),
                   ("in/.hidden", b"x"), (".in/c.json", b""))  # fmt: skip
    found = [(":a.json", b"{}", False), (":in/b.json.gz", b"zipped", False),
             (":.in/c.json", b"", False)]  # fmt: skip
    assert read(tmp_path, data) == found
    assert read(tmp_path, gzip.compress(data)) == found


def test_links_folders_and_sparse_files_of_an_archive_are_passed_over(tmp_path: Path) -> None:
    out = io.BytesIO()
    kinds = {"sym": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "in": tarfile.DIRTYPE,
             "holes": tarfile.GNUTYPE_SPARSE, "a": tarfile.REGTYPE}  # fmt: skip
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in kinds.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a" if name in ("sym", "hard") else ""
            tar.addfile(info)
    assert read(tmp_path, out.getvalue()) == [(":a", b"", False)]


def test_an_archive_may_have_so_many_members(tmp_path: Path) -> None:
    data = archive(("a", b"1"), ("._a", b""), ("b", b"2"))
    limits = FileLimits(members=3)
    assert read(tmp_path, data, limits) == [(":a", b"1", False), (":b", b"2", False)]
    with pytest.raises(TraceError, match="more than 2 files in one archive"):
        read(tmp_path, data, FileLimits(members=2))


def test_a_member_that_claims_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("rank0.json")
    limits = FileLimits(unpacked=1024)
    for size in (1024, 1025):
        info.size = size
        data = info.tobuf() + b"{}"
        if size > 1024:
            with pytest.raises(TraceError, match=r"rank0\.json: 1\.001 KiB is over 1 KiB"):
                read(tmp_path, data, limits)
        else:
            (first, *_) = read(tmp_path, data, limits)
            assert (first[0], first[2]) == (":rank0.json", True)


def test_a_packed_member_is_held_to_the_limits_and_may_be_cut(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(5000))
    data = archive(("a.json.gz", packed[:-1]))
    assert read(tmp_path, data) == [(":a.json.gz", bytes(5000), True)]
    with pytest.raises(TraceError, match=r"a\.json\.gz: unpacks to more than 4\.882 KiB"):
        read(tmp_path, archive(("a.json.gz", packed)), FileLimits(ratio=0, free=4999))


def test_an_archive_that_ends_early_keeps_what_it_had(tmp_path: Path) -> None:
    data = archive(("a", b"1"), ("b", b"2"))
    for left in (1, 100, 511):
        assert read(tmp_path, data[: 1024 + left]) == [
            (":a", b"1", False),
            (" (end of archive)", b"", True),
        ]
    assert read(tmp_path, data[: 1024 + 512])[-1] == (" (end of archive)", b"", True)
    stored = gzip.compress(data, compresslevel=0)  # 15 bytes of heads before the content
    assert read(tmp_path, stored[: 15 + 1024 + 100]) == [
        (":a", b"1", False),
        (" (end of archive)", b"", True),
    ]
    assert read(tmp_path, stored[:-1]) == [(":a", b"1", False), (":b", b"2", False)]
    with pytest.raises(TraceError, match="not a readable archive"):
        read(tmp_path, data[:300])


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot be read \(Is a directory\)"):
        list(documents(tmp_path))


@pytest.mark.parametrize(
    ("size", "taken"), [(2, b"ab"), (0, b""), (9, b"abcdef"), (-1, b"abcdef"), (None, b"abcdef")]
)
def test_reading_takes_what_is_asked_for(size: int | None, taken: bytes) -> None:
    limits = FileLimits(unpacked=6)
    source = files._Unpacked(io.BytesIO(b"abcdef"), Path("x"), limits)
    assert source.peek(3) == b"abc"
    assert source.read(size) == taken
    assert source.read() == b"abcdef"[len(taken) :]
    assert source.read() == b""
