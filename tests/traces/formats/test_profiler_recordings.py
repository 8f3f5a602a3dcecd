"""Rows of profilers' tables, joined to recordings: whose GPU is whose, and what launched what."""

from __future__ import annotations

import pytest

from commsim.errors import TraceError
from commsim.traces.formats.events import EventKind
from commsim.traces.formats.kineto import KinetoFile
from commsim.traces.formats.profiler_tables.recordings import recordings_of
from commsim.traces.formats.profiler_tables.rows import ProfilerTable, Row
from commsim.traces.formats.profiler_tables.values import Cells

NS = 1000  # ps


def kernel(start: int, gpu: str, correlation: int = 1, **more: object) -> Row:
    more = {"stream": 7} | more
    return Row(EventKind.KERNEL, "mm", start, start + 10, correlation=correlation, device=gpu,
               **more)  # type: ignore[arg-type]  # fmt: skip


def call(start: int, pid: int, correlation: int = 1) -> Row:
    return Row(
        EventKind.RUNTIME, "launch", start, start + 2, pid=pid, thread=pid, correlation=correlation
    )


def a_range(name: str, start: int, end: int, pid: int = 9, **more: object) -> Row:
    return Row(EventKind.ANNOTATION, name, start, end, pid=pid, thread=pid, **more)  # type: ignore[arg-type]


def read(*rows: Row, name: str = "x.csv", **more: object) -> list[KinetoFile]:
    return recordings_of([ProfilerTable(name, "run", rows, **more)])  # type: ignore[arg-type]


def events(file: KinetoFile) -> list[tuple[str, int, int]]:
    return [(event.name, event.start // NS, event.end // NS) for event in file.events]


def gpus(files: list[KinetoFile]) -> dict[int, list[int]]:
    """Return the starts of the kernels of each rank, from its first event on."""
    return {
        file.rank: [event.start // NS for event in file.events if event.on_gpu] for file in files
    }


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        ("ns", 1), ("nsec", 1), ("us", 1000), ("usec", 1000), ("μs", 1000), ("ms", 10**6),
        ("msec", 10**6), ("s", 10**9), ("sec", 10**9), ("b", 1), ("byte", 1), ("bytes", 1),
        ("kb", 1000), ("mb", 10**6), ("gb", 10**9), ("kib", 1024), ("mib", 2**20), ("gib", 2**30),
    ],
)  # fmt: skip
def test_a_unit_stands_for_so_many_nanoseconds_or_bytes(unit: str, factor: int) -> None:
    cells = Cells(
        [" 3 ", "2.5", "", "x"], {n: (at, Cells.UNITS[unit]) for at, n in enumerate("abcd")}
    )
    assert cells.amount("a") == 3 * factor
    assert cells.amount("b") == round(2.5 * factor)
    assert cells.amount("c") == cells.amount("none") == -1
    with pytest.raises(ValueError, match="x"):
        cells.amount("d")


def test_a_cell_is_that_of_the_first_column_that_there_is() -> None:
    cells = Cells(["1", "", "0x10", " a b "], {n: (at, 1.0) for at, n in enumerate("abcd")})
    assert (cells.text("d"), cells.text("none", "a"), cells.text("b", "a")) == ("a b", "1", "")
    assert cells.text("none") == ""
    assert (cells.number("a"), cells.number("none", "c"), cells.number("b")) == (1, 16, -1)
    assert cells.number("none") == -1


def test_a_gpu_is_the_process_most_of_whose_calls_its_work_follows() -> None:
    """At 100 only process 7 has called; at 101 both have, and GPU 0 has taken one."""
    calls = [call(100, 7), call(101, 8)]
    files = read(kernel(100, "GPU 0"), kernel(101, "GPU 1"), *calls)
    assert gpus(files) == {0: [0], 1: [0]}
    assert [file.pid for file in files] == ["7", "8"]
    assert all(any("do not tell" in note for note in file.notes) for file in files)
    calls.append(call(102, 8, 2))
    files = read(kernel(100, "GPU 1"), kernel(101, "GPU 0"), kernel(102, "GPU 0", 2), *calls)
    assert [file.pid for file in files] == ["8", "7"]  # in order of their GPUs
    assert not any("do not tell" in note for file in files for note in file.notes)


def test_of_two_processes_whose_calls_fit_each_has_one() -> None:
    """Process 7's calls fit GPU 0 and, more of them, GPU 1; process 8's fit GPU 0 as well."""
    calls = [call(0, 7, 1), call(0, 7, 2), call(0, 7, 3), call(0, 8, 1)]
    work = [kernel(5, "GPU 0", 1), kernel(6, "GPU 1", 2), kernel(7, "GPU 1", 3)]
    assert [file.pid for file in read(*work, *calls)] == ["8", "7"]


def test_what_calls_leave_open_goes_in_order_and_is_said() -> None:
    both = [call(0, 7), call(0, 8)]
    files = read(kernel(5, "GPU 0"), kernel(6, "GPU 1"), *both)
    assert [file.pid for file in files] == ["7", "8"]
    assert all(any("do not tell" in note for note in file.notes) for file in files)


def test_a_process_may_have_more_gpus_than_one() -> None:
    calls = [call(0, 7, 1), call(0, 7, 2), call(0, 8, 3), call(0, 8, 4)]
    work = [kernel(5 + gpu, f"GPU {gpu}", 1 + gpu) for gpu in range(4)]
    one, other = read(*work, *calls)
    assert (one.pid, one.rank, other.pid, other.rank) == ("7", 0, "8", 1)
    assert gpus([one, other]) == {0: [5, 6], 1: [7, 8]}
    assert not any("do not tell" in note for note in (*one.notes, *other.notes))


def test_a_gpu_goes_to_no_process_without_a_call_for_it_if_another_has_one() -> None:
    (file,) = read(kernel(5, "GPU 0", 1), kernel(6, "GPU 1", 2), call(0, 7, 1), call(0, 7, 2),
                   a_range("x", 0, 1, 7), call(0, 8, 3))  # fmt: skip
    assert file.pid == "7"
    assert not any("do not tell" in note for note in file.notes)


def test_gpus_whose_work_no_call_fits_go_to_processes_that_have_none() -> None:
    """GPU 1 is process 8's; 0 and 2 fit nobody: 7, which has none, gets 0, and 8, beside it, 2."""
    files = read(
        kernel(5, "GPU 0", 91), kernel(6, "GPU 1", 2), kernel(7, "GPU 2", 92),
        call(0, 7, 1), call(0, 8, 2),
    )  # fmt: skip
    assert [file.pid for file in files] == ["7", "8"]
    assert gpus(files) == {0: [5], 1: [6, 7]}
    assert all(any("do not tell" in note for note in file.notes) for file in files)


def test_gpus_without_any_process_are_one_each() -> None:
    """In the order of their numbers: 2 before 10."""
    files = read(kernel(5, "GPU 10"), kernel(7, "GPU 2"))
    assert [(file.rank, file.pid) for file in files] == [(0, "0"), (1, "1")]
    assert [note for note in files[1].notes if "taken as rank" in note] == [
        "x.csv: process 1 is taken as rank 1 (in order of their GPUs)."
    ]
    assert files[1].name == "x.csv (process 1)"


def test_a_single_process_has_all_gpus_and_the_files_rank() -> None:
    (file,) = read(kernel(5, "GPU 0"), kernel(6, "GPU 1"), call(0, 7), name="rank3.csv")
    assert (file.rank, file.pid, file.name, file.notes) == (3, "7", "rank3.csv", ())
    assert events(file) == [("launch", 0, 2), ("mm", 5, 15), ("mm", 6, 16)]


def test_processes_of_a_node_are_counted_on_from_its_number() -> None:
    files = read(kernel(5, "GPU 0"), kernel(7, "GPU 1"), name="rank2.csv")
    assert [file.rank for file in files] == [4, 5]
    assert any("is taken as rank 5" in note for note in files[1].notes)


def test_a_process_that_used_no_gpu_is_left_out() -> None:
    one, other = read(
        kernel(5, "GPU 0", pid=6), kernel(5, "GPU 1", pid=7), call(0, 7), call(1, 8),
        a_range("x", 2, 3, pid=8),
    )  # fmt: skip
    assert [name for name, _, _ in events(one)] == ["mm"]
    assert [name for name, _, _ in events(other)] == ["launch", "mm"]


def test_where_no_table_has_calls_a_step_launches_its_work_and_waits_for_it() -> None:
    (file,) = read(
        kernel(10, "GPU 0"),
        kernel(30, "GPU 0"),
        a_range("step 1", 5, 25),
        a_range("step 2", 25, 50),
    )
    assert events(file) == [
        ("ProfilerStep#1", 0, 20),
        ("cudaDeviceSynchronize", 0, 20),
        ("cudaGraphLaunch", 0, 0),
        ("mm", 5, 15),
        ("ProfilerStep#2", 20, 45),
        ("cudaDeviceSynchronize", 20, 45),
        ("cudaGraphLaunch", 20, 20),
        ("mm", 25, 35),
    ]
    launched = {event.name: event.correlation for event in file.events if event.start == 20 * NS}
    assert launched == {"ProfilerStep#2": 0, "cudaDeviceSynchronize": 0, "cudaGraphLaunch": 2}
    assert [event.correlation for event in file.events if event.on_gpu] == [1, 2]
    assert {event.thread for event in file.events if not event.on_gpu} == {("9", "9")}
    (note,) = file.notes
    assert "no table has the calls" in note


def test_without_steps_the_whole_recording_is_one() -> None:
    (file,) = read(kernel(10, "GPU 0"), kernel(30, "GPU 0"), a_range("forward", 5, 25, pid=-1))
    assert events(file) == [
        ("forward", 0, 20),
        ("cudaDeviceSynchronize", 5, 35),
        ("mm", 5, 15),
        ("cudaGraphLaunch", 5, 5),
        ("mm", 25, 35),
    ]
    assert {event.thread[1] for event in file.events if event.name.startswith("cuda")} == {"0"}


def test_work_that_says_when_it_was_launched_has_a_call_there() -> None:
    """rocprof counts from 0, which is no launch elsewhere."""
    (file,) = read(
        kernel(20, "0", 0, launched=0, thread=4, pid=7),
        kernel(30, "0", 1, launched=12, thread=4, pid=7),
    )
    assert [(e.name, e.start // NS, e.correlation, e.stream) for e in file.events] == [
        ("hipLaunchKernel", 0, 1, -1),
        ("hipLaunchKernel", 12, 2, -1),
        ("mm", 20, 1, 7),
        ("mm", 30, 2, 7),
    ]
    assert file.notes == ()
    (file,) = read(kernel(20, "0", 0, launched=0, thread=4, pid=7))
    assert file.notes == ()


def test_what_a_table_does_not_say_of_calls_and_ranges() -> None:
    """No launch, thread 0, and steps counted from 0."""
    (file,) = read(
        kernel(20, "0"), call(1, 7, -1),
        a_range("step", 2, 3, pid=-1), a_range("step", 4, 5, pid=-1),
        Row(EventKind.ANNOTATION, "aten::mm, seq = 7", 6, 7),
        Row(EventKind.ANNOTATION, "a, b", 8, 9),
        Row(EventKind.ANNOTATION, "NCCL:ncclAllReduce", 10, 11),
        Row(EventKind.ANNOTATION, "ncclOdd", 12, 13),
    )  # fmt: skip
    assert [(e.name, e.kind, e.thread[1], e.correlation) for e in file.events] == [
        ("launch", EventKind.RUNTIME, "7", 0),
        ("ProfilerStep#0", EventKind.ANNOTATION, "0", 0),
        ("ProfilerStep#1", EventKind.ANNOTATION, "0", 0),
        ("aten::mm", EventKind.CPU_OP, "0", 0),
        ("a", EventKind.ANNOTATION, "0", 0),
        ("nccl:all_reduce", EventKind.ANNOTATION, "0", 0),
        ("ncclOdd", EventKind.ANNOTATION, "0", 0),
        ("mm", EventKind.KERNEL, "7", 1),
    ]


def test_bytes_and_streams_of_work_are_kept_and_unknown_ones_are_stream_0() -> None:
    (file,) = read(kernel(20, "0", stream=-1, size=64), kernel(25, "0", stream=3), call(0, 7))
    work = [event for event in file.events if event.on_gpu]
    assert [(e.stream, e.thread[1], e.args.bytes) for e in work] == [(0, "0", 64), (3, "3", -1)]


def test_a_range_said_by_its_gpu_work_counts_only_where_no_table_says_it() -> None:
    projected = a_range("step 1", 12, 40, projected=True)
    (file,) = read(kernel(10, "0"), call(0, 9), projected)
    assert ("ProfilerStep#1", 12, 40) in events(file)
    (file,) = read(kernel(10, "0"), call(0, 9), projected, a_range("step 1", 1, 50))
    assert [e for e in events(file) if e[0].startswith("Profiler")] == [("ProfilerStep#1", 1, 50)]


def test_lost_lines_and_a_cut_table_are_said() -> None:
    (file,) = read(kernel(10, "0"), call(0, 9), lost=2)
    assert file.notes == ("x.csv: 2 lines cannot be read and are left out.",)
    assert not file.cut
    (file,) = read(kernel(10, "0"), call(0, 9), cut=True)
    assert file.cut
    tables = [
        ProfilerTable("a.csv", "run", (kernel(10, "0"),), lost=1),
        ProfilerTable("b.csv", "run", (call(0, 9),), lost=3, cut=True),
    ]
    (file,) = recordings_of(tables)
    assert file.cut
    assert file.notes == ("a.csv: 4 lines cannot be read and are left out.",)


def test_runs_without_ranks_in_their_names_have_them_by_gpu() -> None:
    def of(*runs: tuple[str, str]) -> list[tuple[str, int]]:
        files = recordings_of(
            [ProfilerTable(name, name, (kernel(5, gpu), call(0, 7))) for name, gpu in runs]
        )
        return [(file.name, file.rank) for file in files]

    assert of(("a.csv", "GPU 1"), ("b.csv", "GPU 0")) == [("b.csv", 0), ("a.csv", 1)]
    assert of(("a.csv", "GPU 1"), ("b.csv", "GPU 1")) == [("a.csv", -1), ("b.csv", -1)]
    assert of(("a.csv", "GPU 1"), ("rank0.csv", "GPU 0")) == [("a.csv", -1), ("rank0.csv", 0)]
    assert of(("a.csv", "GPU 1")) == [("a.csv", -1)]


@pytest.mark.parametrize(
    ("device", "number"),
    [("NVIDIA H100 (3)", 3), ("Agent 4", 4), ("GPU 12", 12), ("2", 2), ("", 0), ("H100", 100),
     ("9" * 12, 999_999_999), ("4 (7))", 0)],
)  # fmt: skip
def test_the_number_of_a_gpu_ends_its_name(device: str, number: int) -> None:
    mine = kernel(5, device, pid=2)
    if number > 0:
        lower = kernel(5, f"GPU {number - 1}", pid=3)
        assert [file.pid for file in read(mine, lower)] == ["3", "2"]
    if number < 999_999_999:
        higher = kernel(5, f"GPU {number + 1}", pid=1)
        assert [file.pid for file in read(higher, mine)] == ["2", "1"]


def test_calls_alone_are_refused() -> None:
    with pytest.raises(TraceError, match=r"x\.csv: calls and ranges, and no work of a GPU"):
        read(call(0, 7), a_range("step 1", 0, 4))
