"""How many kernels an op launches: optimizers over many tensors, gradients of several kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


def launches(name, *args, out=()):
    from commsim.traces.capture.launches import launches_of

    return launches_of(name, args, out)


def empty(*sizes):
    return [torch.empty(size, device="meta") for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ((10,), 1),
        ((0, 0), 1),
        ((320 * 65536,), 1),
        ((320 * 65536 + 1,), 2),
        ((65536,) * 320, 3),  # 110 tensors a launch
        ((300 * 65536, 20 * 65536, 1), 2),
        ((1,) * 110, 1),
        ((1,) * 111, 2),
    ],
)
def test_a_launch_holds_320_chunks_of_at_most_110_tensors(sizes, count):
    assert launches("_foreach_mul_", empty(*sizes), 0.9) == count


@pytest.mark.parametrize(("lists", "most"), [(2, 64), (3, 48), (4, 36)])
def test_a_launch_holds_fewer_tensors_of_several_lists(lists, most):
    for count, expected in ((most, 1), (most + 1, 2)):
        given = [empty(*(1,) * count) for _ in range(lists)]
        assert launches("_foreach_addcmul_", *given, 1.0) == expected
        assert launches("_foreach_sqrt", *given[1:], out=given[0]) == expected


def test_the_optimizer_of_a_recorded_run():
    """A model of 1.2 billion parameters in 147 tensors: 58 kernels an op on an H200."""
    layer = [2048] * 2 + [2048 * 2048] * 4 + [2048 * 8192] * 3
    sizes = [32000 * 2048, *layer * 16, 2048, 32000 * 2048]
    assert len(sizes) == 147
    for lists in (1, 2, 3):
        assert launches("_foreach_mul_", *(empty(*sizes) for _ in range(lists))) == 58


def test_other_ops_are_a_kernel_or_as_many_as_are_known():
    assert launches("mm", *empty(3, 3)) == 1
    assert launches("_fused_rms_norm_backward", *empty(3, 3)) == 2
    assert launches("_foreach_add_", []) == 1
