"""What a compute op costs: FLOPs, bytes and the product, each worked out by hand."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

ATEN = torch.ops.aten


def cost(func, *args, out=None, **kwargs):
    """Return (FLOPs, bytes, product as a tuple) of an op that runs on real tensors."""
    from msgspec.structs import astuple

    from commsim.traces.capture.costs import cost_of

    found = func(*args, **kwargs) if out is None else out
    name = func._schema.name.removeprefix("aten::")
    flops, traffic, product = cost_of(func, name, args, kwargs, found)
    return flops, traffic, product and astuple(product)


def test_products_of_matrices():
    """[4, 3] x [3, 2]: 2 x 24 FLOPs; 12 + 6 entries are read and 8 written, of 4 bytes."""
    a, b, bias = torch.ones(4, 3), torch.ones(3, 2), torch.ones(2)
    assert cost(ATEN.mm.default, a, b) == (48, 104, ("matmul", 4, 2, 3, 1, "float32", False))
    assert cost(ATEN.addmm.default, bias, a, b) == (
        48, 112, ("matmul", 4, 2, 3, 1, "float32", False),
    )  # fmt: skip
    half = a.bfloat16(), b.bfloat16()
    assert cost(ATEN.mm.default, *half) == (48, 52, ("matmul", 4, 2, 3, 1, "bfloat16", False))


def test_products_of_batches():
    """Five times [4, 3] x [3, 2]."""
    a, b, base = torch.ones(5, 4, 3), torch.ones(5, 3, 2), torch.ones(5, 4, 2)
    product = ("matmul", 4, 2, 3, 5, "float32", False)
    assert cost(ATEN.bmm.default, a, b) == (240, 4 * (60 + 30 + 40), product)
    assert cost(ATEN.baddbmm.default, base, a, b) == (240, 4 * (60 + 30 + 40 + 40), product)


def test_fp32_may_be_told_to_multiply_as_tf32():
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert cost(ATEN.mm.default, torch.ones(4, 3), torch.ones(3, 2))[2][5] == "tf32"
        assert cost(ATEN.mm.default, torch.ones(4, 3).half(), torch.ones(3, 2).half())[2][5] == (
            "float16"
        )
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_two_products_forward_and_five_halves_of_that_backward(causal):
    """2 x 3 heads of 8 queries, 16 keys and width 4: all positions count, under a mask as well."""
    q = torch.ones(2, 3, 8, 4)
    k = v = torch.ones(2, 3, 16, 4)
    forward = 2 * (2 * 3) * 2 * 8 * 16 * 4
    op = ATEN._scaled_dot_product_flash_attention_for_cpu.default
    out = op(q, k, v, 0.0, causal)
    flops, _, product = cost(op, q, k, v, 0.0, causal, out=out)
    assert (flops, product) == (forward, ("attention", 8, 16, 4, 6, "float32", causal))
    back = ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default
    given = (torch.ones_like(out[0]), q, k, v, *out, 0.0, causal)
    flops, _, product = cost(back, *given)
    assert flops == forward * 5 // 2
    assert product == ("attention_backward", 8, 16, 4, 6, "float32", causal)


def test_attention_without_a_mask_said_has_none():
    q = torch.ones(1, 1, 8, 4)
    op = ATEN._scaled_dot_product_flash_attention_for_cpu.default
    assert cost(op, q, q, q)[2][-1] is False


def test_other_products_have_no_shape():
    """A convolution of one 3 x 3 kernel over 5 x 5 gives 3 x 3: 2 x 9 x 9 FLOPs."""
    image, weight = torch.ones(1, 1, 5, 5), torch.ones(1, 1, 3, 3)
    given = (image, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    flops, traffic, product = cost(ATEN.convolution.default, *given)
    assert (flops, traffic, product) == (
        162, 4 * (25 + 9 + 9), ("other", 0, 0, 0, 0, "float32", False),
    )  # fmt: skip


def test_what_is_only_written_is_not_read():
    """Without a result it is the argument that is filled."""
    ten = torch.ones(10)
    assert cost(ATEN.zero_.default, ten) == (0, 40, None)
    assert cost(ATEN.zeros_like.default, ten)[1] == 40
    assert cost(ATEN._foreach_zero_.default, [ten, ten], out=())[1] == 80


def test_a_copy_reads_its_source_and_writes_as_many_entries():
    target, source = torch.ones(10), torch.ones(10, dtype=torch.float64)
    assert cost(ATEN.copy_.default, target, source)[1] == 80 + 40
    one = torch.ones(1, dtype=torch.float64).expand(10)
    assert cost(ATEN.copy_.default, target, one)[1] == 8 + 40
    parts = [torch.ones(4, dtype=torch.float64), torch.ones(2, dtype=torch.float64)]
    into = [torch.ones(4), torch.ones(2)]
    assert cost(ATEN._foreach_copy_.default, into, parts, out=())[1] == 48 + 6 * 8


def test_a_lookup_reads_what_it_finds_and_where():
    """Three rows of four: found and written, with indices of 8 bytes."""
    table, at = torch.ones(100, 4), torch.tensor([1, 2, 3])
    assert cost(ATEN.embedding.default, table, at)[1] == 2 * 48 + 24
    assert cost(ATEN.index_select.default, table, 0, at)[1] == 2 * 48 + 24


def test_what_changes_lists_in_place_writes_the_first_of_them():
    some, more = [torch.ones(10)], [torch.ones(10)]
    assert cost(ATEN._foreach_add_.List, some, more, out=())[1] == 40 + 40 + 40
    assert cost(ATEN._foreach_add.List, some, more)[1] == 40 + 40 + 40


def test_every_other_op_reads_what_it_is_given_and_writes_its_result():
    assert cost(ATEN.add.Tensor, torch.ones(10), torch.ones(10)) == (0, 120, None)
    assert cost(ATEN.add.Tensor, torch.ones(10), torch.ones(1).expand(10))[1] == 84
    assert cost(ATEN.relu.default, torch.ones(3, 0))[1] == 0


def test_views_launch_nothing():
    from commsim.traces.capture.costs import is_free, tensors

    assert is_free("aten", "view")
    assert is_free("prim", "device")
    assert not is_free("aten", "mm")
    one = torch.ones(1)
    assert tensors(([one, 3], {"a": (one, None)})) == [one, one]


@pytest.mark.parametrize(
    ("name", "before", "after"), [("mm", 0, 0), ("_scaled_mm", 0, 2), ("addmm", 1, 0)]
)
def test_a_matrix_product_is_of_the_matrices_among_its_arguments(name, before, after):
    """Scales follow those of `_scaled_mm`, what is added comes before those of `addmm`."""
    from commsim.traces.capture.costs import _product
    from commsim.traces.capture.records import Product

    other = torch.ones(7)
    given = (*[other] * before, torch.ones(2, 3), torch.ones(3, 5), *[other] * after)
    found = _product(None, name, given, 60)
    assert found == Product("matmul", 2, 5, 3, 1, "float32")


def test_a_loss_touches_an_entry_of_each_row():
    """Of 4 rows of 10 the forward reads 4 targets and 4 entries; the backward writes zeros."""
    rows, targets = torch.ones(4, 10), torch.tensor([1, 2, 3, 4])
    forward = (rows, targets, None, 1, -100)
    out = ATEN.nll_loss_forward.default(*forward)
    assert cost(ATEN.nll_loss_forward.default, *forward)[1] == 2 * 4 * 8
    back = (torch.ones(()), rows, targets, None, 1, -100, out[1])
    assert cost(ATEN.nll_loss_backward.default, *back)[1] == 4 * 10 * 4


@pytest.mark.parametrize(("row", "forward", "backward"), [(12288, 2, 3), (12289, 4, 4)])
def test_a_softmax_of_long_rows_reads_them_again(row, forward, backward):
    """Rows of up to 48 KiB are kept in shared memory; of others each pass reads anew."""
    rows = torch.zeros(2, row)
    each = 4 * 2 * row
    assert cost(ATEN._log_softmax.default, rows, -1, False)[1] == forward * each
    given = (rows, rows, -1, torch.float32)
    assert cost(ATEN._log_softmax_backward_data.default, *given)[1] == backward * each


def test_the_gradient_of_a_norm_is_two_kernels_that_read_the_same():
    """Of the input and of the weight; both read the gradient and the input."""
    x, weight, rstd = torch.ones(4, 8), torch.ones(8), torch.ones(4, 1)
    op = ATEN._fused_rms_norm_backward.default
    given = (x, x, [8], rstd, weight, [True, True])
    assert cost(op, *given, out=(x, weight))[1] == 4 * (32 * 5 + 4 + 8 * 2)
