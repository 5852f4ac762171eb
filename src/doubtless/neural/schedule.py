"""A training run as data: ``CONFIG.toml``, checked, and what is trained at which rate at each moment.

Nothing here needs PyTorch, so that a mistake in a file is found before anything heavy is loaded.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from doubtless.errors import InputError
from doubtless.formats.files import named, opened
from doubtless.formats.words import quoted, reason
from doubtless.neural.config import ModelConfig

Precision = Literal["no", "bf16"]
Decay = Literal["none", "linear"]
Metric = Literal["pearson", "spearman", "kendall", "mae", "loss"]
_LOWER_IS_BETTER = ("mae", "loss")


@dataclass(frozen=True)
class DataConfig:
    """Where the segments are: ``[data]``.

    Parameters
    ----------
    train, dev
        Tables; paths are relative to the configuration file. Without ``dev`` 5 % of the sources are held
        out, drawn by the seed.
    where, dev_where
        Conditions in SQL on the rows of each. ``dev_where`` without ``dev`` picks rows of ``train``.
    sample, dev_sample
        At most so many rows, drawn by the seed (0: all).
    human, src, mt, ref, lp
        Names of columns. Rows without a human score are left out.
    score
        For error models: the score of the model whose errors are learnt. That model must not have seen
        these rows in training: its residuals on its own training data are too small.
    tags, words
        For models with ``word_tags``: one label a whitespace token, as a list or separated by blanks, and
        the column with the tokens; without such a column they are those of the translation.
    group
        Column of groups, such as ``lp``: figures on the validation rows are then means over groups.
    unfinished
        For models with ``partial``: whether the row's translation is a prefix. Without such a column
        prefixes are drawn anew in each epoch.
    """

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    where: str = ""
    dev_where: str = ""
    sample: int = 0
    dev_sample: int = 0
    human: str = "human"
    src: str = "src"
    mt: str = "mt"
    ref: str = "ref"
    lp: str = "lp"
    score: str = "score"
    tags: str = "mt_tags"
    words: str = "mt_tok"
    group: str = ""
    unfinished: str = "unfinished"

    def __post_init__(self) -> None:
        if not self.train:
            raise InputError('[data] names no table to train on: train = "FILE"')
        for name in ("sample", "dev_sample"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is at least 0, found {getattr(self, name)}")


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained: ``[training]``. The defaults are those of the papers.

    Parameters
    ----------
    output
        Folder of the run: ``model/``, ``metrics.jsonl``, ``checkpoints/`` and ``cache/``.
    start
        Folder of a model to start from: its weights replace those of the encoder and the new heads. The
        vocabulary may differ as long as the embeddings are frozen: they are the encoder's.
    seed
        Decides everything that is random.
    epochs, max_steps
        Passes over the data; most steps of the optimiser (0: as many as the epochs have).
    batch_size, batch_tokens
        Rows of a batch (16), or how many tokens it may have, padding included: one of the two.
    gradient_accumulation
        Batches to a step of the optimiser.
    learning_rate, encoder_learning_rate, layerwise_decay
        Rate of the heads; rate of the encoder's last layer; factor from each layer to the one below.
    warmup_steps, decay
        Steps in which rates rise to their values; whether they then fall to zero (``linear``).
    weight_decay, clip
        Of AdamW; largest norm of a gradient (0: any).
    frozen_epochs, freeze_embeddings
        Epochs (or the share of one) in which only the heads learn; whether the embeddings ever do.
    freeze, cache_states
        The embeddings and the first ``freeze`` layers stay as they are, without dropout; whether their
        outputs are computed once and kept in a file.
    encoder_dropout
        Dropout of the encoder while it learns, instead of the encoder's own. On a CPU 0 saves a quarter of
        the time; the saved model keeps the encoder's own.
    precision, threads
        ``bf16`` multiplies matrices in half precision; CPU threads (0: as PyTorch chooses). Where others use
        the processor too, fewer threads are often faster.
    beta, tag_weight, tag_class_weights, auxiliary_weight
        Weights of the error term, of the tags' term, of each tag in it, and of the auxiliary terms.
    early_gradient
        Share of the gradients of exits before the last that reaches the encoder. Their heads learn from all
        of them; a small share leaves the encoder to the last exit.
    metric, patience
        What the best model is chosen by on the validation rows; validations without a better one after
        which training stops (0: never).
    validate_every, checkpoint_every, log_every
        In steps; 0: at the end of each epoch only (there always).
    fertility
        Of prefix training: tokens of the translation to a token of the source, a number or one a language
        pair.
    standardise
        Whether human scores are brought to mean 0 and deviation 1. The model remembers both numbers, and
        gives scores on the human scale.
    """

    output: str = ""
    start: str = ""
    seed: int = 0
    epochs: int = 1
    max_steps: int = 0
    batch_size: int | None = None
    batch_tokens: int | None = None
    gradient_accumulation: int = 1
    learning_rate: float = 1.5e-5
    encoder_learning_rate: float = 1e-6
    layerwise_decay: float = 0.95
    warmup_steps: int = 0
    decay: Decay = "none"
    weight_decay: float = 0.01
    clip: float = 1.0
    frozen_epochs: float = 0.3
    freeze_embeddings: bool = True
    freeze: int = 0
    cache_states: bool = False
    encoder_dropout: float | None = None
    precision: Precision = "no"
    threads: int = 0
    beta: float = 0.75
    tag_weight: float = 1.0
    tag_class_weights: tuple[float, ...] = ()
    auxiliary_weight: float = 0.5
    early_gradient: float = 1.0
    metric: Metric = "pearson"
    patience: int = 0
    validate_every: int = 0
    checkpoint_every: int = 0
    log_every: int = 100
    fertility: float | Mapping[str, float] = 1.0
    standardise: bool = False

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_tokens is not None:
            raise InputError("a batch has a batch_size or batch_tokens, not both")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} is at least {least}, found {value}")
        if not 0 < self.layerwise_decay <= 1:
            raise InputError(f"layerwise_decay lies between 0 and 1, found {self.layerwise_decay}")
        if not 0 <= self.early_gradient <= 1:
            raise InputError(f"early_gradient lies between 0 and 1, found {self.early_gradient}")
        if self.cache_states and not self.freeze:
            raise InputError("cache_states needs frozen layers: freeze = 1 or more")
        rates = self.fertility.values() if isinstance(self.fertility, Mapping) else [self.fertility]
        if any(rate <= 0 for rate in rates):
            raise InputError("fertility is a positive number")

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """Rows and tokens that a batch may have; one of them is None."""
        size = 16 if self.batch_size is None and self.batch_tokens is None else self.batch_size
        return size, self.batch_tokens


_LEAST = {
    **dict.fromkeys(("epochs", "batch_size", "batch_tokens", "gradient_accumulation"), 1),
    **dict.fromkeys(("seed", "max_steps", "warmup_steps", "freeze", "patience", "validate_every"), 0),
    **dict.fromkeys(("checkpoint_every", "log_every", "learning_rate", "encoder_learning_rate"), 0),
    **dict.fromkeys(("weight_decay", "clip", "frozen_epochs", "beta", "tag_weight", "threads"), 0),
    "auxiliary_weight": 0,
}


@dataclass(frozen=True)
class Plan:
    """All of a training run: the model, the data, the training, and the folder paths start from."""

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
    folder: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        model, training = self.model, self.training
        if not model.encoder:
            raise InputError('[model] names no encoder: encoder = "FOLDER or hub name"')
        if not training.output:
            raise InputError('[training] names no folder for the results: output = "FOLDER"')
        if model.outputs == "distance":
            raise InputError("models with outputs distance have no head and are not trained here")
        if model.restart and training.cache_states:
            raise InputError("cache_states cannot be used with restart: the embeddings are needed again")
        if training.cache_states and model.word_tags and -1 < model.word_layer < training.freeze:
            raise InputError(f"cached states begin at layer {training.freeze}, tags are read below it")
        weights = training.tag_class_weights
        if weights and len(weights) != len(model.word_tags):
            raise InputError(f"{len(weights)} tag_class_weights for {len(model.word_tags)} word_tags")

    @property
    def output(self) -> Path:
        """The folder of the run."""
        return self.folder / self.training.output

    @property
    def resolved_model(self) -> ModelConfig:
        """The model with the path of its encoder as it is seen from here; hub names stay."""
        here = self.folder / self.model.encoder
        return replace(self.model, encoder=os.fspath(here)) if here.is_dir() else self.model

    def as_json(self) -> dict[str, Any]:
        """Return plain data for cards and checkpoints."""
        return {
            "model": self.model.as_json(),
            "data": asdict(self.data),
            "training": asdict(self.training),
        }


def read_plan(path: str | os.PathLike[str], output: str | None = None) -> Plan:
    """Read ``CONFIG.toml``.

    Parameters
    ----------
    path
        The file, with the tables ``[model]``, ``[data]`` and ``[training]``.
    output
        Overrules the folder of the results; relative to the working directory.

    Raises
    ------
    InputError
        In one sentence what cannot be used: options that are unknown, of the wrong kind or at odds.
    """
    name = named(path)
    with opened(path, name) as stream:
        try:
            content = tomllib.loads(stream.read().decode("utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{name}: this is not TOML ({reason(error)})") from None
    try:
        return plan_of(content, Path(path).parent, output)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def plan_of(content: Mapping[str, Any], folder: Path, output: str | None = None) -> Plan:
    """Make a plan from the tables of a configuration file."""
    kinds: dict[str, Any] = {"model": ModelConfig, "data": DataConfig, "training": TrainingConfig}
    for name, table in content.items():
        if name not in kinds:
            raise InputError(f"there is no table [{name}]{_meant(name, kinds)}")
        if not isinstance(table, Mapping):
            raise InputError(f"{name} is a table: [{name}]")
    made = {name: _checked(kind, name, content.get(name, {})) for name, kind in kinds.items()}
    if output is not None:
        made["training"] = replace(made["training"], output=os.path.abspath(output))
    return Plan(**made, folder=folder)


def _checked(kind: Any, table: str, content: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    options: dict[str, Any] = {}
    for name, value in content.items():
        if name not in hints:
            raise InputError(f"[{table}] has no option {quoted(name)}{_meant(name, hints)}")
        several = get_origin(hints[name]) is tuple
        given = [value] if several and isinstance(value, str) else value  # one file is a list of one
        if not _fits(given, hints[name]):
            raise InputError(f"{name} in [{table}] is {_said(hints[name])}, found {quoted(str(value))}")
        options[name] = tuple(given) if several else given
    return kind(**options)


def _meant(word: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(word, known, n=1)
    return f", did you mean '{close[0]}'?" if close else ""


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of a TOML file is of a type."""
    if hint is float:
        return type(value) in (int, float)
    if isinstance(hint, type):
        return type(value) is hint
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    return isinstance(value, Mapping) and all(_fits(item, inner[1]) for item in value.values())


def _said(hint: Any) -> str:
    simple = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_said(option) for option in inner if option is not NoneType)
    if origin is Literal:
        return f"one of {', '.join(inner)}"
    if origin is tuple:
        return f"a list, each {_said(inner[0])}"
    return simple.get(hint, "a table")


def better(metric: Metric, value: float | None, best: float | None) -> bool:
    """Whether a figure is better than the best one so far; one that is not defined never is."""
    if value is None or best is None:
        return value is not None
    return value < best if metric in _LOWER_IS_BETTER else value > best


def encoder_rests(training: TrainingConfig, progress: float) -> bool:
    """Whether only the heads learn now; ``progress`` counts epochs, with fractions."""
    return progress < training.frozen_epochs


def rate_factor(training: TrainingConfig, step: int, progress: float) -> float:
    """What the learning rates are multiplied by at a step (counted from 0).

    >>> training = TrainingConfig(warmup_steps=4, epochs=2, decay="linear")
    >>> [rate_factor(training, step, progress) for step, progress in ((0, 0), (3, 0), (50, 1))]
    [0.25, 1.0, 0.5]
    """
    rise = min(1.0, (step + 1) / training.warmup_steps) if training.warmup_steps else 1.0
    if training.decay == "none":
        return rise
    passed = progress / training.epochs
    if training.max_steps:
        passed = max(passed, step / training.max_steps)
    return rise * (1 - passed)


def free_to_change(training: TrainingConfig) -> set[str]:
    """Options that may differ when a run is resumed, because they only say how long it goes on."""
    lasting = {"output", "patience", "log_every", "checkpoint_every"}
    return lasting if training.decay == "linear" else {*lasting, "epochs", "max_steps"}


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names of the entries in which two mappings differ, of inner mappings the inner names."""
    found = []
    for name in sorted({*one, *other}):
        a, b = one.get(name), other.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differing(a, b)
        elif a != b:
            found.append(name)
    return found
