"""What a translation model doubts: ten signals for each token of a given translation.

The translation is forced: the model reads the source, and at each place predicts the token that stands there
(:mod:`doubtless.words.forced`). A higher value should mean a worse token. Logarithms are natural: surprisal,
entropy and divergence are in nats.

Signals with a value for each layer have columns from 0 (the embeddings) to N - 1; ``ll-surprisal:4`` names
one of them. Which layer is best must be found on other data than it is judged on (:func:`best_layer`, and
:mod:`doubtless.words.layers` for tables of words).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.formats.words import counted, listed, quoted
from doubtless.metaeval.detection import detection_curve
from doubtless.neural.rows import token_batches
from doubtless.neural.tokens import Offsets
from doubtless.words.spans import Floats, How, as_far_as_read, project
from doubtless.words.subwords import Scheme, placed

if TYPE_CHECKING:
    from torch import Tensor

    from doubtless.words.forced import Batch, TranslationModel
    from doubtless.words.reading import Forced

PASSES = 10
"""Passes of MC dropout, as in the paper."""

PROBES = 4
"""Random directions of BLOOD, for each token and layer."""


class Signal(NamedTuple):
    """A signal: what it is, and whether each layer has a value of its own."""

    title: str
    layered: bool = False


SIGNALS: Mapping[str, Signal] = {
    "surprisal": Signal("minus the log-probability of the token"),
    "entropy": Signal("entropy of the prediction"),
    "mcd-avg": Signal("surprisal, mean over passes with dropout"),
    "mcd-var": Signal("surprisal, variance over passes with dropout"),
    "ll-surprisal": Signal("surprisal at an inner layer", layered=True),
    "ll-kl": Signal("divergence of an inner layer's prediction from the last", layered=True),
    "depth": Signal("first layer that predicts the token"),
    "attention-avg": Signal("entropy of attention, mean over heads and layers"),
    "attention-max": Signal("entropy of attention, largest of heads and layers"),
    "blood": Signal("squared norm of a layer's Jacobian", layered=True),
}


@dataclass(frozen=True, eq=False)
class TokenSignals:
    """Signals of the tokens of one translation.

    ``values`` maps names of signals to arrays of shape (tokens) or, where each layer has a value, (tokens,
    layers). Of a segment that is too long for the model only the tokens that it read are here; ``stopped`` is
    the character of the translation from which on there are none, or None if it read all.
    """

    tokens: list[str]
    offsets: Offsets
    values: dict[str, Floats]
    stopped: int | None = None

    def of(self, name: str) -> Floats:
        """One value a token of a signal; ``name:layer`` chooses the layer, else it is the last inner one."""
        signal, layer = parse_signal(name)
        values = self.values[signal]
        if values.ndim == 1:
            return values
        if layer is not None and layer >= values.shape[1]:
            raise InputError(f"{signal} has layers 0 to {values.shape[1] - 1}, found {layer}")
        return values[:, -1 if layer is None else layer]

    def on(self, name: str, pieces: Offsets, how: How = "max") -> Floats:
        """A signal on other pieces of the translation, such as its words (:func:`project`).

        Pieces that the model did not read, or not to their end, have NaN.
        """
        values = project(self.of(name), self.offsets, pieces, how, missing=0.0)
        return as_far_as_read(values, pieces, self.stopped)


def require_torch() -> None:
    """Say in one sentence that translation models need PyTorch, where it is missing."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise InputError("torch or transformers is missing: pip install 'doubtless[torch]'")


def parse_signal(name: str) -> tuple[str, int | None]:
    """Read the name of a signal, with the layer if it is told.

    Examples
    --------
    >>> parse_signal("ll-kl:3"), parse_signal("entropy")
    (('ll-kl', 3), ('entropy', None))
    """
    signal, colon, layer = name.partition(":")
    if signal not in SIGNALS:
        raise InputError(f"there is no signal {quoted(signal)}, expected some of: {listed(SIGNALS)}")
    if not colon:
        return signal, None
    if not layer.isdigit() or not SIGNALS[signal].layered:
        raise InputError(f"{quoted(name)} names no layer of {signal}")
    return signal, int(layer)


def every_layer(names: Iterable[str], layers: int) -> list[str]:
    """Write out ``:all`` of signals that have layers.

    Examples
    --------
    >>> every_layer(["entropy", "ll-kl:all"], 3)
    ['entropy', 'll-kl:0', 'll-kl:1', 'll-kl:2']
    """
    found = []
    for name in names:
        signal, _, layer = name.partition(":")
        written_out = layer == "all" and signal in SIGNALS and SIGNALS[signal].layered
        found += [f"{signal}:{i}" for i in range(layers)] if written_out else [name]
    return list(dict.fromkeys(found))


def token_signals(
    model: TranslationModel,
    sources: Sequence[str],
    translations: Sequence[str],
    names: Sequence[str] = ("surprisal", "entropy"),
    *,
    passes: int = PASSES,
    probes: int = PROBES,
    seed: int = 0,
    batch_tokens: int = 2_048,
    progress: Callable[[int], None] | None = None,
) -> list[TokenSignals]:
    """Compute signals of translations, whoever made them.

    Parameters
    ----------
    model
        The translation model that is asked.
    sources, translations
        The segments.
    names
        Signals, of :data:`SIGNALS`.
    passes
        How often MC dropout runs the model. Layers are never dropped, only activations.
    probes
        How many random directions BLOOD looks into.
    seed
        Of dropout and probes. Batches draw in turn, so that these signals also depend on ``batch_tokens``.
    batch_tokens
        Most tokens of a batch, padding included.
    progress
        Called with the number of segments that are done.

    Returns
    -------
    list of TokenSignals
        One for each segment, in their order. Special tokens (ends, language tags) have none, nor have those
        that do not fit into the model: the end of a long translation, all if the source is too long.

    Examples
    --------
    >>> found = token_signals(model, ["央行上调了利率。"], ["The bank cut rates."])  # doctest: +SKIP
    >>> dict(zip(found[0].tokens, found[0].values["surprisal"].round(1)))  # doctest: +SKIP
    {'▁The': 0.5, '▁bank': 4.4, '▁cut': 6.5, '▁rates': 1.6, '.': 0.1}
    """
    import torch

    if len(sources) != len(translations):
        raise InputError(f"{len(sources)} sources for {counted(len(translations), 'translation')}")
    if passes < 2 or probes < 1:
        raise InputError("MC dropout needs at least two passes, BLOOD at least one probe")
    wanted = {parse_signal(name)[0] for name in names}
    segments = [model.encode(*pair) for pair in zip(sources, translations, strict=True)]
    found: list[TokenSignals | None] = [None] * len(segments)
    sizes = np.array([max(len(s.source), len(s.target)) for s in segments])
    draws = torch.Generator().manual_seed(seed)
    with _evaluating(model), torch.no_grad(), _seeded(model, seed):
        for rows in token_batches(sizes, batch_tokens):
            chosen = [segments[row] for row in rows]
            values = _of_batch(model, model.batch(chosen), wanted, passes, probes, draws)
            for row, own in zip(rows, _apart(chosen, values), strict=True):
                found[row] = own
            if progress is not None:
                progress(len(rows))
    return [signals for signals in found if signals is not None]


def _of_batch(
    model: TranslationModel, batch: Batch, wanted: set[str], passes: int, probes: int, draws: Any
) -> dict[str, Tensor]:
    """The wanted signals of all tokens of a batch, one below the other."""
    from doubtless.words.blood import sharpness
    from doubtless.words.lens import predicted, seen_through

    inside = bool(wanted & {"ll-surprisal", "ll-kl", "depth", "blood"})
    with model.traced(inside) as trace:
        read = model.read(batch, output_attentions=any(name.startswith("attention") for name in wanted))
    last = batch.chosen(read.last_hidden_state)
    values: dict[str, Tensor] = {}
    if wanted & {"surprisal", "entropy"}:
        values |= predicted(last, batch.token, model.logits, entropy="entropy" in wanted)
    if wanted & {"ll-surprisal", "ll-kl", "depth"}:
        inner = [model.lens(batch.chosen(states)) for states in trace.states[:-1]]
        values |= seen_through(inner, last, batch.token, model.logits)
    if wanted & {"attention-avg", "attention-max"}:
        values |= _attention_entropy(batch, read)
    if "blood" in wanted:
        values["blood"] = sharpness(model, batch, trace, probes, draws)
    if wanted & {"mcd-avg", "mcd-var"}:
        values |= _dropped_out(model, batch, passes)
    return {name: values[name] for name in SIGNALS if name in wanted}


def _attention_entropy(batch: Batch, read: Any) -> dict[str, Tensor]:
    """Entropy of what each head looks at, own tokens and source together as one distribution."""
    import torch

    entropies = []
    crossed = getattr(read, "cross_attentions", None) or [None] * len(read.attentions)
    for own, other in zip(read.attentions, crossed, strict=True):
        weights = own.transpose(1, 2) if other is None else torch.cat([own, other], dim=3).transpose(1, 2)
        shares = batch.chosen(weights).float()
        entropies.append(torch.special.entr(shares / shares.sum(-1, keepdim=True)).sum(-1))
    heads = torch.cat(entropies, dim=1)
    if not len(heads):
        return {"attention-avg": heads.sum(1), "attention-max": heads.sum(1)}
    return {"attention-avg": heads.mean(1), "attention-max": heads.amax(1)}


def _dropped_out(model: TranslationModel, batch: Batch, passes: int) -> dict[str, Tensor]:
    """Mean and variance (over passes, divided by their number) of surprisal with dropout."""
    import torch

    from doubtless.words.lens import predicted

    runs = []
    with _training(model):
        for _ in range(passes):
            last = batch.chosen(model.read(batch).last_hidden_state)
            runs.append(predicted(last, batch.token, model.logits, entropy=False)["surprisal"].double())
    surprisal = torch.stack(runs)
    if surprisal.numel() and bool((surprisal == surprisal[0]).all()):
        raise InputError(f"{model.name}: the model has no dropout, so that mcd-avg and mcd-var say nothing")
    mean = surprisal.mean(0)
    return {"mcd-avg": mean, "mcd-var": (surprisal - mean).square().mean(0)}


@contextmanager
def _evaluating(model: TranslationModel) -> Iterator[None]:
    """Without dropout; every module gets its mode back."""
    modes = [(module, module.training) for module in model.model.modules()]
    model.model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def _training(model: TranslationModel) -> Iterator[None]:
    """With dropout of activations, but of no whole layers; back to evaluation whatever happens."""
    kept = [(m, m.layerdrop) for m in model.model.modules() if hasattr(m, "layerdrop")]
    try:
        for module, _ in kept:
            module.layerdrop = 0.0
        model.model.train()
        yield
    finally:
        model.model.eval()
        for module, share in kept:
            module.layerdrop = share


@contextmanager
def _seeded(model: TranslationModel, seed: int) -> Iterator[None]:
    """Draw from a seed, and leave the caller's random numbers as they were."""
    import torch

    device = model.model.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _apart(segments: Sequence[Forced], values: Mapping[str, Tensor]) -> Iterator[TokenSignals]:
    """Cut the signals of a batch into segments."""
    arrays = {name: tensor.double().cpu().numpy() for name, tensor in values.items()}
    start = 0
    for segment in segments:
        rows = slice(start, start + len(segment.tokens))
        own = {name: array[rows] for name, array in arrays.items()}
        yield TokenSignals(segment.tokens, segment.offsets, own, segment.stopped)
        start = rows.stop


def recorded_signals(
    text: str, units: Sequence[str] | str, logprobs: ArrayLike, scheme: Scheme = "auto"
) -> TokenSignals:
    """Take surprisal from log-probabilities that were recorded when a translation was made.

    Parameters
    ----------
    text
        The translation.
    units
        Its subword units, as a list or with blanks between them.
    logprobs
        Natural logarithms, one a unit; one more, of the end of the sentence, is left out.
    scheme
        How units are written (:func:`doubtless.words.subwords.placed`).

    Examples
    --------
    >>> found = recorded_signals("A brown cow", "A br@@ own cow", [-0.1, -2.0, -0.5, -3.0, -0.1])
    >>> found.on("surprisal", [(0, 1), (2, 7), (8, 11)]).tolist()
    [0.1, 2.0, 3.0]
    """
    if isinstance(units, str):
        units = units.split()
    pieces = list(units) if isinstance(units, Iterable) else [units]
    if not all(isinstance(piece, str) for piece in pieces):
        raise InputError(f"subword units are a text or a list of texts, found {quoted(str(units))}")
    values = -_numbers(logprobs)
    if len(values) not in (len(pieces), len(pieces) + 1):
        raise InputError(f"{len(values)} log-probabilities for {counted(len(pieces), 'unit')}")
    if not np.isfinite(values).all():
        raise InputError("a log-probability is not a finite number")
    return TokenSignals(pieces, placed(text, pieces, scheme), {"surprisal": values[: len(pieces)]})


def _numbers(logprobs: ArrayLike) -> Floats:
    with suppress(TypeError, ValueError):
        values = np.asarray(logprobs, dtype=np.float64)
        if values.ndim == 1:
            return values
    raise InputError(f"log-probabilities are a list of numbers, found {quoted(str(logprobs))}")


def best_layer(values: ArrayLike, wrong: ArrayLike) -> int:
    """Find the layer of a signal that detects errors best, by average precision, on calibration data.

    Parameters
    ----------
    values
        The signal of calibration tokens, of shape (tokens, layers).
    wrong
        Which of these tokens are errors.

    Examples
    --------
    >>> best_layer([[0.3, 0.9], [0.8, 0.1], [0.1, 0.8]], [True, False, True])
    1
    """
    columns = np.asarray(values, dtype=np.float64).T
    return int(np.argmax([detection_curve(column, wrong).average_precision for column in columns]))
