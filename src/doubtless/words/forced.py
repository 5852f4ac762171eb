"""Translation models that are made to read a given translation: every token predicted in one batched pass.

Any encoder-decoder of Hugging Face (Marian, mBART, NLLB, M2M, T5) and, with a prompt, any decoder-only model.
What differs between architectures is not listed by name but found out once and checked against the model's
own output when it is opened: which norm ends the decoder, and how its last state becomes logits.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from doubtless.errors import InputError
from doubtless.formats.words import quoted
from doubtless.neural.folder import first_line, locate
from doubtless.words.anatomy import Way, final_norm, way_to_logits
from doubtless.words.reading import Forced, as_one, as_pair

_LANGUAGES = ("{source}", "{target}")
_SAMPLE = 64  # numbers of each matrix that a fingerprint looks at


@dataclass(frozen=True)
class Batch:
    """Segments as tensors: what encoder and decoder read, where each token of text is predicted, and which.

    ``row`` and ``column`` are the places of the decoder's states, ``token`` the ids that they should predict.
    """

    source: Tensor | None
    source_mask: Tensor | None
    inputs: Tensor
    mask: Tensor
    row: Tensor
    column: Tensor
    token: Tensor

    def chosen(self, states: Tensor) -> Tensor:
        """The states (batch, position, …) that predict tokens of text."""
        return states[self.row, self.column]


@dataclass
class Trace:
    """What went into each layer of the decoder and what came out, in one pass."""

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def states(self) -> list[Tensor]:
        """The states before the first layer and after each; the last one before the final norm."""
        return [self.calls[0][0][0], *self.outputs]


@dataclass(frozen=True, eq=False)
class TranslationModel:
    """A translation model that is ready to read translations; :func:`open_translation_model` makes one.

    Parameters
    ----------
    model, tokenizer
        As Hugging Face makes them.
    name
        For messages and signatures.
    template
        What the model reads for a source: text in which ``{src}`` stands for it, ``{source}`` and
        ``{target}`` for the languages.
    languages
        Source and target language, as the model calls them.
    """

    model: Any
    tokenizer: Any
    name: str
    template: str = "{src}"
    languages: tuple[str, str] = ("", "")
    _norm: Way = field(init=False, repr=False)
    _logits: Way = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if "{src}" not in self.template:
            raise InputError(f"a prompt has {{src}} where the source goes, found {quoted(self.template)}")
        norm, logits = _anatomy(self)
        object.__setattr__(self, "_norm", norm)
        object.__setattr__(self, "_logits", logits)

    @property
    def is_told_languages(self) -> bool:
        """Whether what it reads depends on the languages."""
        return _is_multilingual(self.tokenizer) or any(name in self.template for name in _LANGUAGES)

    def told(self, lp: str | None) -> TranslationModel:
        """The same model for another language pair, such as ``en-de``."""
        return replace(self, languages=_languages(self.tokenizer, None, lp, self.name))

    @property
    def has_encoder(self) -> bool:
        """Whether the source is read by an encoder."""
        return bool(self.model.config.is_encoder_decoder)

    @property
    def decoder(self) -> Any:
        """The module whose layers are looked into."""
        return self.model.get_decoder() if self.has_encoder else self.model.base_model

    @property
    def layers(self) -> nn.ModuleList:
        """The layers of the decoder."""
        return next(child for child in self.decoder.children() if isinstance(child, nn.ModuleList))

    @property
    def most(self) -> int | None:
        """Most tokens of a sequence; None: no limit."""
        return getattr(self.model.config, "max_position_embeddings", None)

    def fingerprint(self) -> str:
        """Eight hex digits of a sample of the weights, by which models are told apart."""
        digest = sha256(str(self.model.config.model_type).encode())
        for name, weights in sorted(self.model.state_dict().items()):
            flat = weights.flatten()
            sample = flat[:: max(1, len(flat) // _SAMPLE)].float().cpu().numpy()
            digest.update(f"{name} {tuple(weights.shape)}".encode() + sample.tobytes())
        return digest.hexdigest()[:8]

    def encode(self, source: str, translation: str) -> Forced:
        """Turn a segment into tokens, as many as the model can read."""
        if any(self.languages) and _is_multilingual(self.tokenizer):  # models for other languages share it
            self.tokenizer.src_lang, self.tokenizer.tgt_lang = self.languages
        asked = self.template
        for name, code in zip((*_LANGUAGES, "{src}"), (*self.languages, source), strict=True):
            asked = asked.replace(name, code)
        return (as_pair if self.has_encoder else as_one)(self.tokenizer, asked, translation, self.most)

    def batch(self, segments: Sequence[Forced]) -> Batch:
        """Make tensors of segments, padded to the right."""
        device = self.model.device
        target, mask = _padded([s.target for s in segments], self.tokenizer.pad_token_id or 0, device)
        source = source_mask = None
        inputs, back = target, 1  # the state before a token predicts it
        if self.has_encoder:
            source, source_mask = _padded([s.source for s in segments], self.tokenizer.pad_token_id, device)
            inputs, back = self._shifted(target, mask), 0
        places = [(row, place) for row, s in enumerate(segments) for place in s.text]
        row, place = torch.tensor(places, dtype=torch.long, device=device).reshape(-1, 2).unbind(1)
        return Batch(source, source_mask, inputs, mask, row, place - back, target[row, place])

    def _shifted(self, target: Tensor, mask: Tensor) -> Tensor:
        """What the decoder has read when it predicts each target: a first token, then the targets before."""
        if self.model.config.model_type == "mbart":  # begins with what its targets end with: end or language
            first = target.gather(1, mask.sum(1, keepdim=True) - 1)
        else:
            first = torch.full_like(target[:, :1], self.model.config.decoder_start_token_id)
        return torch.cat([first, target[:, :-1]], dim=1)

    def read(self, batch: Batch, **wishes: bool) -> Any:
        """Run the model over a batch and return the output of its decoder."""
        if not self.has_encoder:
            return self.decoder(input_ids=batch.inputs, attention_mask=batch.mask, use_cache=False, **wishes)
        source = self.model.get_encoder()(input_ids=batch.source, attention_mask=batch.source_mask)
        return self.decoder(
            input_ids=batch.inputs,
            attention_mask=batch.mask,
            encoder_hidden_states=source.last_hidden_state,
            encoder_attention_mask=batch.source_mask,
            use_cache=False,
            **wishes,
        )

    def logits(self, states: Tensor) -> Tensor:
        """The logits of last states, which are behind the final norm."""
        return self._logits(states)

    def lens(self, states: Tensor) -> Tensor:
        """Inner states, or the last ones before the final norm, as if they were last ones behind it."""
        return self._norm(states)

    @contextmanager
    def traced(self, wanted: bool = True) -> Iterator[Trace]:
        """Keep what the decoder's layers read and write while the context lasts, if that is wanted."""
        trace = Trace()

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not args:  # some versions name the first argument
                kwargs = dict(kwargs)
                args = (kwargs.pop("hidden_states"),)
            trace.calls.append((args, kwargs))

        def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            trace.outputs.append(first_of(output))

        handles = []
        for layer in self.layers if wanted else ():
            handles.append(layer.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(layer.register_forward_hook(after))
        try:
            yield trace
        finally:
            for handle in handles:
                handle.remove()


def open_translation_model(
    source: str | os.PathLike[str],
    *,
    languages: tuple[str, str] | None = None,
    lp: str | None = None,
    template: str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
) -> TranslationModel:
    """Open a translation model of Hugging Face.

    Parameters
    ----------
    source
        A folder or a name on the hub. Weights must be safetensors: nothing is unpickled.
    languages
        Source and target language as a multilingual model calls them: ``("eng_Latn", "deu_Latn")``.
    lp
        The language pair, such as ``en-de``. Stands in for ``languages`` where the model's codes are these
        (M2M) or begin with them (mBART's ``de_DE``).
    template
        What the model reads for a source. ``{src}`` stands for the source, ``{source}`` and ``{target}`` for
        the languages. Needed for decoder-only models (``"German: {src}\\nEnglish: "``), and where a model
        wants a prefix (T5's ``"translate English to German: {src}"``).
    device, dtype, threads
        Where it runs and how.

    Raises
    ------
    InputError
        If there is no such model, languages or a template are missing, or the model is built in a way that
        cannot be looked into.

    Examples
    --------
    >>> model = open_translation_model("models/zh-en")  # doctest: +SKIP
    >>> model = open_translation_model("facebook/nllb-200-distilled-600M",
    ...     languages=("eng_Latn", "deu_Latn"))  # doctest: +SKIP
    """
    import transformers

    if threads is not None:
        torch.set_num_threads(threads)
    path = locate(source)
    try:
        config: Any = transformers.AutoConfig.from_pretrained(path)
        auto = (
            transformers.AutoModelForSeq2SeqLM
            if config.is_encoder_decoder
            else transformers.AutoModelForCausalLM
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tokenizers recommend packages that are not needed here
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(path)
        with _quiet():
            # Only this implementation gives attention weights.
            model: Any = auto.from_pretrained(path, attn_implementation="eager", use_safetensors=True)
        model = model.to(torch.device(device), getattr(torch, dtype)).eval()
    except (OSError, ValueError, KeyError, ImportError, AttributeError, RuntimeError) as error:
        raise InputError(f"{source}: no translation model can be opened ({first_line(error)})") from None
    chosen = _languages(tokenizer, languages, lp, str(source))
    if template is None:
        if not config.is_encoder_decoder:
            raise InputError(
                f"{source}: a decoder-only model needs a prompt, such as 'German: {{src}}\\nEnglish: '"
            )
        template = "{src}"
    return TranslationModel(model, tokenizer, os.fspath(source), template, chosen)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a progress bar for a few seconds of loading."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _languages(
    tokenizer: Any, languages: tuple[str, str] | None, lp: str | None, name: str
) -> tuple[str, str]:
    """How a model calls the two languages, of which a multilingual one must be told."""
    spoken = tuple((lp or "-").replace("_", "-").split("-", 1))
    if not _is_multilingual(tokenizer):
        return languages or (spoken[0], spoken[-1])
    known = set(getattr(tokenizer, "lang_code_to_id", None) or tokenizer.get_vocab())
    if languages is None:
        found = [[c for c in known if c == code or c.startswith(f"{code}_")] for code in spoken if code]
        if len(found) != 2 or any(len(codes) != 1 for codes in found):
            raise InputError(
                f"{name}: the model knows many languages, say which two in its own codes (eng_Latn,deu_Latn)"
            )
        languages = (found[0][0], found[1][0])
    for code in languages:
        if code not in known:
            raise InputError(f"{name}: the model knows no language {quoted(code)}")
    return languages


def _is_multilingual(tokenizer: Any) -> bool:
    return hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang")


def _anatomy(model: TranslationModel) -> tuple[Way, Way]:
    """The final norm of the decoder and the way from last states to logits, both checked on a pass."""
    ids = torch.arange(min(4, model.model.config.vocab_size), device=model.model.device)[None]
    ones = torch.ones_like(ids)
    none = torch.zeros(0, dtype=torch.long)
    source, source_mask = (ids, ones) if model.has_encoder else (None, None)
    batch = Batch(source, source_mask, ids, ones, none, none, none)
    asked = {"input_ids": ids, "attention_mask": ones, "use_cache": False}
    asked |= {"decoder_input_ids": ids} if model.has_encoder else {}
    mode = model.model.training
    model.model.eval()
    try:
        with torch.no_grad(), model.traced() as trace:
            last = model.read(batch).last_hidden_state
            norm = final_norm(model.decoder, trace.outputs[-1], last)
            logits = way_to_logits(model.model, last, model.model(**asked).logits)
    finally:
        model.model.train(mode)
    if norm is None or logits is None:
        kind = type(model.model).__name__
        raise InputError(
            f"{model.name}: cannot look into a {kind}, whose last layer does not lead to its output"
        )
    return norm, logits


def first_of(output: Any) -> Tensor:
    """What a layer returns: the states, alone or before other things."""
    return output[0] if isinstance(output, tuple) else output


def _padded(rows: Sequence[list[int]], padding: int, device: torch.device) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), padding, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return ids.to(device), mask.to(device)
