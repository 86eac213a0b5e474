"""Claim: norms and clipped sums of examples' gradients are right where no gradient is made.

Every layer is compared with plain autograd, one example at a time.  No norm is too small, also
where an example's own pieces cancel, or are so small that their squares vanish.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from torch import Tensor, nn  # noqa: E402

from mmcc.training import _ghost_terms  # noqa: E402
from mmcc.training._example_gradients import full_precision  # noqa: E402
from mmcc.training._ghost_rules import is_ghostly, prepare, terms_of  # noqa: E402
from mmcc.training._ghost_sums import joined, squared_norms  # noqa: E402
from mmcc.training._ghost_terms import Gather, Outer, Rows  # noqa: E402
from mmcc.training._lengths import BLOCK, squared_lengths  # noqa: E402

EXAMPLES = 4
Call = tuple[nn.Module, Tensor]


def drawn(*shape: int) -> Tensor:
    return torch.randn(EXAMPLES, *shape, dtype=torch.float64)


def tokens(length: int = 6, words: int = 5) -> Tensor:
    return torch.randint(words, (EXAMPLES, length))


def transposed(rows: int, columns: int) -> nn.Module:
    pytest.importorskip("transformers")
    from transformers.pytorch_utils import Conv1D

    return Conv1D(columns, rows)


def conv(dimensions: int, **options) -> nn.Module:
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    return kind(4, 6, **{"kernel_size": 2, **options})


CALLS = {
    "linear": lambda: (nn.Linear(5, 3), drawn(5)),
    "linear, sequences": lambda: (nn.Linear(5, 3), drawn(2, 5)),
    "linear, long sequences": lambda: (nn.Linear(5, 3), drawn(40, 5)),
    "linear, two dimensions": lambda: (nn.Linear(5, 3), drawn(2, 3, 5)),
    "linear without bias": lambda: (nn.Linear(5, 3, bias=False), drawn(5)),
    "transposed linear": lambda: (transposed(5, 3), drawn(2, 5)),
    "embedding": lambda: (nn.Embedding(5, 3), tokens()),
    "embedding of one word": lambda: (nn.Embedding(5, 3), tokens()[:, 0]),
    "embedding of grids": lambda: (nn.Embedding(5, 3), tokens(6).view(EXAMPLES, 2, 3)),
    "embedding with padding": lambda: (nn.Embedding(5, 3, padding_idx=2), tokens()),
    "embedding of small integers": lambda: (nn.Embedding(5, 3), tokens().int()),
    "layer norm": lambda: (nn.LayerNorm(5), drawn(5)),
    "layer norm, sequences": lambda: (nn.LayerNorm(5), drawn(2, 3, 5)),
    "layer norm over two dimensions": lambda: (nn.LayerNorm((3, 5)), drawn(2, 3, 5)),
    "layer norm without bias": lambda: (nn.LayerNorm(5, bias=False), drawn(2, 5)),
    "rms norm": lambda: (nn.RMSNorm(5), drawn(2, 5)),
    "group norm": lambda: (nn.GroupNorm(2, 4), drawn(4)),
    "group norm, images": lambda: (nn.GroupNorm(2, 4), drawn(4, 3, 3)),
    "instance norm": lambda: (nn.InstanceNorm1d(4, affine=True), drawn(4, 7)),
    "prelu": lambda: (nn.PReLU(4), drawn(4, 7)),
    "bilinear by functorch": lambda: (nn.ConvTranspose1d(4, 6, 2), drawn(4, 5)),
    "conv 1d": lambda: (conv(1), drawn(4, 6)),
    "conv 1d, one window": lambda: (conv(1, kernel_size=6), drawn(4, 6)),
    "conv 1d, strides": lambda: (conv(1, stride=3, kernel_size=2), drawn(4, 9)),
    "conv 1d, same": lambda: (conv(1, padding="same", dilation=2, kernel_size=4), drawn(4, 9)),
    "conv 2d": lambda: (conv(2), drawn(4, 3, 4)),
    "conv 2d, long": lambda: (conv(2, kernel_size=(1, 2)), drawn(4, 20, 20)),
    "conv 2d, all": lambda: (
        conv(2, kernel_size=(2, 3), stride=(2, 1), padding=(1, 2), dilation=(2, 1), groups=2),
        drawn(4, 6, 5),
    ),
    "conv 2d, circular": lambda: (conv(2, padding=1, padding_mode="circular"), drawn(4, 3, 4)),
    "conv 2d, reflected": lambda: (conv(2, padding=1, padding_mode="reflect"), drawn(4, 3, 4)),
    "conv 2d, depthwise": lambda: (nn.Conv2d(4, 8, 2, groups=4), drawn(4, 3, 4)),
    "conv 3d": lambda: (conv(3, groups=2, padding=1), drawn(4, 2, 3, 2)),
    "conv without bias": lambda: (conv(2, bias=False), drawn(4, 3, 4)),
}


def truth(calls: list[Call], gradients: list[Tensor], p: nn.Parameter) -> Tensor:
    """Each example's gradient of a parameter, by plain autograd."""
    rows = []
    for i in range(EXAMPLES):
        loss = sum(
            (layer(given[i : i + 1]) * wanted[i : i + 1]).sum()
            for (layer, given), wanted in zip(calls, gradients, strict=True)
        )
        rows.append(torch.autograd.grad(loss, p)[0])
    return torch.stack(rows)


def found_terms(calls: list[Call], gradients: list[Tensor]):
    """Terms of all parameters, as a backward pass leaves them."""
    found: dict = {}
    with full_precision(torch.device("cpu")):
        for (layer, given), wanted in zip(calls, gradients, strict=True):
            for p, term in terms_of(layer, given, wanted).items():
                found.setdefault(p, []).append(term)
    return found


def check(calls: list[Call], *, tolerance: float = 1e-12) -> dict:
    """Compare norms, rows and sums of every parameter with the truth."""
    gradients = [torch.randn_like(layer(given)) for layer, given in calls]
    factors = torch.tensor([0.3, -2.0, 0.0, 1.0], dtype=torch.float64)
    found = found_terms(calls, gradients)
    trained = {p for layer, _ in calls for p in layer.parameters()}
    assert found.keys() == trained
    kinds = {}
    for p, uses in found.items():
        rows = truth(calls, gradients, p)
        scale = float(rows.norm())
        terms = joined(uses)
        with full_precision(p.device):
            squares = squared_norms(terms)
            total = torch.zeros(p.shape, dtype=torch.float64)
            for term in terms:
                term.add(total, factors)
            third = sum(term.row(2) for term in terms)
        lengths = rows.flatten(1).square().sum(dim=1)
        torch.testing.assert_close(squares, lengths, rtol=tolerance, atol=tolerance * scale**2)
        expected = torch.tensordot(factors, rows, dims=1)
        torch.testing.assert_close(total, expected, rtol=0, atol=tolerance * scale)
        torch.testing.assert_close(third, rows[2], rtol=0, atol=tolerance * scale)
        kinds[tuple(p.shape)] = [type(term) for term in terms]
    return kinds


@pytest.fixture(params=[2**24, 50], ids=["at once", "in blocks"])
def _blocks(request, monkeypatch):
    monkeypatch.setattr(_ghost_terms, "BLOCK", request.param)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("_blocks")
def test_layers(name):
    torch.manual_seed(1)
    layer, given = CALLS[name]()
    layer.double()
    prepare(layer)
    check([(layer, given)])


@pytest.mark.parametrize(
    "name", ["linear", "linear, sequences", "embedding", "conv 2d", "group norm", "prelu"]
)
def test_layers_that_are_used_several_times(name):
    torch.manual_seed(2)
    layer, _ = CALLS[name]()
    layer.double()
    prepare(layer)
    check([(layer, CALLS[name]()[1]) for _ in range(3)])


def test_convolutions_of_images_of_two_sizes():
    torch.manual_seed(2)
    layer = conv(2, kernel_size=3).double()
    kinds = check([(layer, drawn(4, 4, 4)), (layer, drawn(4, 3, 5))])
    assert kinds[6, 4, 3, 3] == [Outer]


def test_tied_embeddings():
    torch.manual_seed(3)
    words = nn.Embedding(7, 5).double()
    head = nn.Linear(5, 7, bias=False).double()
    head.weight = words.weight
    kinds = check([(words, tokens(words=7)), (head, drawn(6, 5)), (words, tokens(2, words=7))])
    assert kinds == {(7, 5): [Outer, Gather]}


def test_a_weight_in_two_kinds_of_layers_has_rows():
    torch.manual_seed(3)
    one, other = nn.Linear(5, 5, bias=False).double(), transposed(5, 5).double()
    other.weight = one.weight
    calls = [(one, drawn(5)), (other, drawn(5))]
    assert check(calls)[5, 5] == [Outer]  # as both are sums of outer products of one shape
    wide, word = nn.Linear(7, 5, bias=False).double(), nn.Embedding(5, 7).double()
    word.weight = wide.weight
    check([(wide, drawn(7)), (word, tokens())])
    kernel = conv(1, kernel_size=1, bias=False).double()
    flat = nn.Linear(4, 6, bias=False).double()
    gradients = [torch.randn(EXAMPLES, 6, 9).double(), torch.randn(EXAMPLES, 6).double()]
    terms = found_terms([(kernel, drawn(4, 9)), (flat, drawn(4))], gradients)
    mixed = [terms[kernel.weight][0], Rows(terms[flat.weight][0].rows().values[..., None])]
    assert [type(term) for term in joined(mixed)] == [Rows]


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize("name", ["linear", "conv 2d", "layer norm", "group norm", "prelu"])
def test_frozen_parameters_have_no_terms(name, frozen):
    layer, given = CALLS[name]()
    layer.double()
    dict(layer.named_parameters()).get(frozen, torch.zeros(())).requires_grad_(False)
    gradients = torch.randn_like(layer(given))
    found = found_terms([(layer, given)], [gradients])
    assert set(found) == {p for p in layer.parameters() if p.requires_grad}


# ---------------------------------------------------------------- no norm is too small


def outer(left: Tensor, right: Tensor) -> Outer:
    return Outer(left[:, None], right[:, None], (left.shape[-1], right.shape[-1]))


@pytest.mark.parametrize("away", [1e-1, 1e-2, 1e-3, 1e-4])
def test_an_example_whose_own_pieces_cancel(away):
    """Two long pieces, nearly opposite: the sum of products has no digit left, and rows have."""
    torch.manual_seed(4)
    left = torch.randn(EXAMPLES, 1, 30)
    right = torch.randn(EXAMPLES, 1, 20)
    left = torch.cat([left, -left * (1 + away * torch.rand(EXAMPLES, 1, 30))], dim=1)
    term = outer(left, torch.cat([right, right], dim=1))
    assert not term.exact
    exact = outer(left.double(), torch.cat([right, right], dim=1).double()).rows().squares()
    torch.testing.assert_close(squared_norms([term]).double(), exact, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("tied", [False, True], ids=["one layer", "tied layers"])
@pytest.mark.parametrize(("width", "other"), [(30_000, 700), (700, 30_000)])
def test_wide_pieces_of_equal_numbers_that_cancel(width, other, tied):
    """Single precision rounds equal numbers the same way: norms were 13 % too small."""
    kept = 0.03
    left, right = torch.full((1, 2, width), 0.7000123), torch.full((1, 2, other), 1.0003)
    left[:, 1] *= kept - 1
    terms = [outer(left, right)]
    exact = terms[0].rows().squares().double()
    if tied:  # all but a part of the first word's row is taken away again
        values = right[:, :1] * (kept - 1) * left[0, 0, 0] * kept
        terms.append(Gather(torch.zeros(1, 1, dtype=torch.long), values, (width, other)))
        exact = sum(term.rows().values.double() for term in terms).square().sum().view(1)
    assert not terms[0].exact
    torch.testing.assert_close(squared_norms(joined(terms)).double(), exact, rtol=1e-4, atol=0.0)


def test_pieces_that_cancel_between_tied_layers():
    torch.manual_seed(5)
    values = torch.randn(EXAMPLES, 1, 20)
    index = torch.randint(30, (EXAMPLES, 1))
    one_hot = nn.functional.one_hot(index, 30).float()
    head = outer(-one_hot, values * (1 + 1e-4 * torch.rand(EXAMPLES, 1, 20)))
    terms = [head, Gather(index, values, (30, 20))]
    exact = sum(term.rows().values.double() for term in terms).flatten(1).square().sum(dim=1)
    torch.testing.assert_close(squared_norms(joined(terms)).double(), exact, rtol=1e-3, atol=0.0)


def test_devices_without_double_precision_have_the_same_norms(monkeypatch):
    """What needs it is found on the CPU; here nothing has to move."""
    torch.manual_seed(9)
    head = outer(torch.randn(EXAMPLES, 2, 30), torch.randn(EXAMPLES, 2, 20))
    words = Gather(torch.randint(30, (EXAMPLES, 4)), torch.randn(EXAMPLES, 4, 20), (30, 20))
    usual = [squared_norms([head]), squared_norms([head, words])]
    monkeypatch.setattr(_ghost_terms, "WITHOUT_DOUBLES", ("cpu",))
    for found, expected in zip(
        [squared_norms([head]), squared_norms([head, words])], usual, strict=True
    ):
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)


def test_gradients_whose_squares_vanish():
    """1e-23 has no square in single precision, but times 1e17 it is a gradient."""
    left = torch.full((2, 1, 30), 1e-23)
    right = torch.full((2, 1, 20), 1e17)
    right[1] = 0.0
    found = squared_norms([outer(left, right)])
    torch.testing.assert_close(found, torch.tensor([600 * 1e-12, 0.0]), rtol=1e-3, atol=0.0)


def test_what_is_not_finite_is_no_norm_and_nobody_elses():
    torch.manual_seed(6)
    for bad in (torch.nan, torch.inf):
        left, right = torch.randn(EXAMPLES, 2, 30), torch.randn(EXAMPLES, 2, 20)
        clean = squared_norms([outer(left, right)])
        left[1, 0, 3] = bad
        found = squared_norms([outer(left, right)])
        assert found.isfinite().tolist() == [True, False, True, True]
        assert torch.equal(found[[0, 2, 3]], clean[[0, 2, 3]])


def test_norms_of_coarse_gradients_are_fine():
    """The gradients are in bfloat16; what is computed from them is not."""
    torch.manual_seed(7)
    layer = nn.Linear(40, 30).bfloat16()
    given, gradients = torch.randn(EXAMPLES, 3, 40), torch.randn(EXAMPLES, 3, 30)
    given, gradients = given.bfloat16(), gradients.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16), full_precision(torch.device("cpu")):
        terms = terms_of(layer, given, gradients)
        weight = terms[layer.weight]
        squares, total = squared_norms([weight]), torch.zeros(30, 40)
        weight.add(total, torch.ones(EXAMPLES))
    rows = torch.einsum("nti,ntj->nij", gradients.double(), given.double())
    exact = rows.flatten(1).square().sum(dim=1)
    torch.testing.assert_close(squares.double(), exact, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(total.double(), rows.sum(dim=0), rtol=1e-4, atol=1e-4)
    bias = terms[layer.bias].squares().double()
    exact = gradients.double().sum(dim=1).square().sum(dim=1)
    torch.testing.assert_close(bias, exact, rtol=1e-5, atol=0.0)


def test_precision_is_left_as_it_was():
    torch.set_float32_matmul_precision("high")
    try:
        with full_precision(torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    ("layer", "ghostly"),
    [
        (nn.Linear(2, 2), True),
        (nn.Conv2d(2, 2, 2), True),
        (nn.PReLU(), True),
        (nn.InstanceNorm1d(3, affine=True), True),
        (nn.ConvTranspose2d(2, 2, 2), False),
        (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), False),
        (type("Own", (nn.Linear,), {})(2, 2), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_which_layers_have_no_large_rows(layer, ghostly):
    """A type of one's own may do something else than the one it comes from."""
    assert is_ghostly(layer) is ghostly


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
def test_lengths_of_rows(size, kind):
    torch.manual_seed(8)
    rows = torch.randn(2, size + 3).to(kind)[:, :size]
    exact = rows.double().square().sum(dim=1)
    torch.testing.assert_close(
        squared_lengths(rows, torch.float32).double(), exact, rtol=1e-5, atol=0.0
    )
    assert squared_lengths(rows[:0], torch.float32).shape == (0,)


@pytest.mark.parametrize("term", ["rows", "outer"])
def test_norms_of_many_numbers_are_not_too_small(term):
    """4e7 squares, one after another, are 4 % short in single precision."""
    ones = torch.full((1, 1, 4, 1), 0.1), torch.full((1, 1, 4, 10**7), 1.0)
    ones[0][0, 0, 1::2] = -0.1  # pieces that cancel, but for the last
    ones[0][0, 0, 3] = 0.0
    if term == "rows":
        found = Rows(torch.full((1, 10**7), 0.1).expand(1, 4, 10**7)).squares()
        expected = 4e5
    else:
        found, expected = squared_norms([Outer(*ones, (1, 10**7))]), 1e5
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "name", [name for name in CALLS if not name.startswith(("embedding", "bilinear"))]
)
def test_terms_are_where_the_gradients_are(name):
    """No accelerator was used; on `meta`, what is left on the CPU by mistake is an error."""
    layer, given = CALLS[name]()
    layer.double().to("meta")
    given = given.to("meta")
    found = found_terms([(layer, given)], [torch.empty_like(layer(given))])
    factors = torch.ones(EXAMPLES, device="meta", dtype=torch.float64)
    for p, (term,) in found.items():
        total = torch.empty_like(p)
        term.add(total, factors)
        assert total.is_meta
        for made in (term.squares(), term.sizes(), term.alive()):
            assert made.is_meta
            assert made.shape == (EXAMPLES,)
        assert term.rows().values.shape == (EXAMPLES, *p.shape)
