"""Pruning inside Hugging Face's ``generate``: a decoding loop from which dropped candidates really disappear.

``generate`` can mark a candidate as finished, but goes on computing it until the last of the batch is. So the
loop itself is replaced, by the hook that ``generate`` has for this (``custom_generate``); what comes before
it (encoding, options, processors of logits, criteria of stopping) stays Hugging Face's. Candidates that are
dropped or finished leave the batch and the cache of attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from doubtless.decide.prune import Plan, Scorer, survivors
from doubtless.errors import InputError
from doubtless.forecast import Floats


@dataclass(frozen=True, eq=False)
class Report:
    """What was generated for a batch of sources.

    Parameters
    ----------
    candidates
        The candidates of each source that were finished, with their scores in ``scores`` and the sums of
        their log-probabilities in ``log_probs``.
    best
        The number of the best-scored one.
    tokens
        Steps of the decoder, counted for each candidate: the cost of generating.
    scored
        Translations that were scored, unfinished ones included: the cost of looking.
    alive
        Candidates of each source after each look.
    """

    candidates: list[list[str]]
    scores: list[Floats]
    log_probs: list[Floats]
    best: list[int]
    tokens: int
    scored: int
    alive: list[list[int]]

    @property
    def chosen(self) -> list[str]:
        """The best candidate of each source."""
        return [texts[best] for texts, best in zip(self.candidates, self.best, strict=True)]


@dataclass(eq=False)
class Pruner:
    """A decoding loop for ``generate(custom_generate=...)`` that drops unpromising candidates early.

    Sampling with ``num_return_sequences`` candidates a source, or beam search with ``num_beams``, of which
    pruning leaves ever fewer. ``generate`` returns the best candidate of each source; ``report`` knows the
    others.

    Parameters
    ----------
    scorer
        Scores finished and unfinished translations: :func:`doubtless.decide.prune.engine_scorer`.
    tokenizer
        The translation model's.
    sources
        The texts that are being translated, in the order of the batch.
    plan
        When to look and what to keep.

    Examples
    --------
    >>> pruner = Pruner(scorer, tokenizer, sources, Plan(keep=(0.5,)))  # doctest: +SKIP
    >>> batch = tokenizer(sources, return_tensors="pt", padding=True)  # doctest: +SKIP
    >>> best = model.generate(
    ...     **batch, do_sample=True, num_return_sequences=32, custom_generate=pruner
    ... )  # doctest: +SKIP
    >>> pruner.report.tokens  # doctest: +SKIP
    """

    scorer: Scorer
    tokenizer: Any
    sources: Sequence[str]
    plan: Plan
    report: Report | None = field(default=None, init=False)

    def __call__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> torch.Tensor:
        """Decode; called by ``generate``."""
        beams = int(generation_config.num_beams)
        if not model.config.is_encoder_decoder:
            raise InputError(
                "candidates are pruned for translation models with an encoder and a decoder only"
            )
        if beams > 1 and generation_config.do_sample:
            raise InputError("beams are searched or sequences are sampled: both at once cannot be pruned")
        width = max(beams, int(generation_config.num_return_sequences))
        if len(input_ids) != width * len(self.sources):
            raise InputError(f"{len(self.sources)} sources were announced, {len(input_ids) // width} came")
        decoder = _Decoder(model, logits_processor, input_ids, model_kwargs)
        lengths = model_kwargs["attention_mask"][::width].sum(dim=1).cpu().numpy() - 1
        run = _Run(self, decoder, stopping_criteria, generation_config, width, self.plan.looks(lengths))
        with torch.no_grad():
            while len(run.origin):
                if beams > 1:
                    run.extend_beams()
                else:
                    run.extend_samples()
                run.look()
        self.report, sequences = run.finish()
        return torch.nn.utils.rnn.pad_sequence(
            sequences, batch_first=True, padding_value=int(self.tokenizer.pad_token_id)
        )


class _Decoder:
    """The decoder of a model with the rows that are alive, and their cache."""

    def __init__(self, model: Any, processors: Any, input_ids: torch.Tensor, options: dict[str, Any]) -> None:
        self.model, self.processors = model, processors
        self.sequences = input_ids
        self.hidden = options["encoder_outputs"][0]
        self.mask = options["attention_mask"]
        self.cache = options.get("past_key_values")
        self.fed = 0
        self.steps = 0

    def log_probs(self) -> torch.Tensor:
        """Log-probabilities of the next token of every row, processed as asked for."""
        out = self.model(
            encoder_outputs=(self.hidden,),
            attention_mask=self.mask,
            decoder_input_ids=self.sequences[:, self.fed :],
            past_key_values=self.cache,
            use_cache=True,
            return_dict=True,
        )
        self.cache, self.fed = out.past_key_values, self.sequences.shape[1]
        self.steps += len(self.sequences)
        log_probs = torch.log_softmax(out.logits[:, -1].float(), dim=-1)
        processed: torch.Tensor = self.processors(self.sequences, log_probs)
        return processed

    def keep(self, rows: torch.Tensor, sequences: torch.Tensor) -> None:
        """Go on with these rows (of those that are alive), as these sequences."""
        self.sequences = sequences
        if len(rows) == len(self.hidden) and bool(
            (rows == torch.arange(len(rows), device=rows.device)).all()
        ):
            return
        self.hidden, self.mask = self.hidden[rows], self.mask[rows]
        if self.cache is not None and self.fed and len(rows):
            self.cache.batch_select_indices(rows)


class _Run:
    """One batch on its way: which row belongs to which source, what is finished, what it has cost."""

    def __init__(
        self, pruner: Pruner, decoder: _Decoder, criteria: Any, config: Any, width: int, looks: np.ndarray
    ) -> None:
        self.pruner, self.decoder, self.criteria, self.config = pruner, decoder, criteria, config
        self.looks = looks
        count = len(pruner.sources)
        self.prompt = decoder.sequences.shape[1]
        self.origin = np.repeat(np.arange(count), width)
        self.total = torch.zeros(len(self.origin), device=decoder.sequences.device)
        self.width = np.full(count, width)
        self.finished: list[list[tuple[float, float, torch.Tensor]]] = [[] for _ in range(count)]
        self.alive: list[list[int]] = [[] for _ in range(count)]
        self.scored = 0
        if config.num_beams > 1:  # all beams start alike
            self._go_on(
                torch.arange(0, len(self.origin), width), decoder.sequences[::width], self.total[::width]
            )

    @property
    def generated(self) -> int:
        """Tokens of every row that is alive."""
        return self.decoder.sequences.shape[1] - self.prompt

    def extend_samples(self) -> None:
        """One more token for every row, drawn or the most probable; finished rows leave."""
        log_probs = self.decoder.log_probs()
        if self.config.do_sample:
            token = torch.multinomial(log_probs.softmax(dim=-1), 1)
        else:
            token = log_probs.argmax(dim=-1, keepdim=True)
        total = self.total + log_probs.gather(1, token)[:, 0]
        sequences = torch.cat([self.decoder.sequences, token], dim=1)
        done = self.criteria(sequences, None)
        for row in torch.nonzero(done)[:, 0].tolist():
            self._finish(int(self.origin[row]), sequences[row], float(total[row]))
        going = torch.nonzero(~done)[:, 0]
        self._go_on(going, sequences[going], total[going])

    def extend_beams(self) -> None:
        """One step of beam search for every source."""
        log_probs = self.decoder.log_probs() + self.total[:, None]
        size = log_probs.shape[1]
        rows: list[int] = []
        parts: list[torch.Tensor] = []
        totals: list[torch.Tensor] = []
        for source in np.unique(self.origin).tolist():
            own = np.flatnonzero(self.origin == source)
            width = int(self.width[source])
            # Twice as many as beams: enough to go on with even if the best of them end here.
            total, place = log_probs[own].flatten().topk(min(2 * width, len(own) * size))
            parent = own[(place // size).cpu().numpy()]
            sequences = torch.cat([self.decoder.sequences[parent], (place % size)[:, None]], dim=1)
            done = self.criteria(sequences, None).cpu().numpy()
            for rank in np.flatnonzero(done[:width]):
                self._finish(source, sequences[rank], float(total[rank]))
            going = np.flatnonzero(~done)[:width]
            if len(going) and not self._decided(source, float(total[going[0]])):
                rows += parent[going].tolist()
                parts.append(sequences[going])
                totals.append(total[going])
        device = self.decoder.sequences.device
        empty = self.decoder.sequences[:0]
        self._go_on(
            torch.tensor(rows, dtype=torch.long, device=device),
            torch.cat(parts) if parts else empty,
            torch.cat(totals) if totals else self.total[:0],
        )

    def _decided(self, source: int, best_live: float) -> bool:
        """Whether no beam that is alive can still be among the best finished ones."""
        width = int(self.width[source])
        best = sorted((score for score, _, _ in self.finished[source]), reverse=True)[:width]
        if len(best) < width:
            return False
        length = self.generated + 1
        return (
            self.config.early_stopping is True or best[-1] >= best_live / length**self.config.length_penalty
        )

    def _finish(self, source: int, sequence: torch.Tensor, total: float) -> None:
        length = len(sequence) - self.prompt
        self.finished[source].append((total / length**self.config.length_penalty, total, sequence))

    def _go_on(self, rows: torch.Tensor, sequences: torch.Tensor, total: torch.Tensor) -> None:
        self.origin = self.origin[rows.cpu().numpy()]
        self.total = total
        self.decoder.keep(rows, sequences)

    def look(self) -> None:
        """Drop the worst candidates of the sources whose time has come."""
        for number, keep in enumerate(self.pruner.plan.keep):
            due = np.flatnonzero(self.looks[self.origin, number] == self.generated)
            if not len(due):
                continue
            kept = np.ones(len(self.origin), dtype=bool)
            if keep < 1:
                texts = self._texts(self.decoder.sequences[due])
                kept[due] = survivors(self._score(self.origin[due], texts, True), self.origin[due], keep)
            for source in np.unique(self.origin[due]):
                left = int(kept[self.origin == source].sum())
                self.alive[source].append(left)
                self.width[source] = min(int(self.width[source]), left)
            rows = torch.as_tensor(np.flatnonzero(kept), device=self.total.device)
            self._go_on(rows, self.decoder.sequences[rows], self.total[rows])

    def _texts(self, sequences: torch.Tensor | list[torch.Tensor]) -> list[str]:
        texts: list[str] = self.pruner.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return texts

    def _score(self, source: np.ndarray, texts: list[str], unfinished: bool) -> Floats:
        self.scored += len(texts)
        given = [self.pruner.sources[number] for number in source]
        return np.asarray(self.pruner.scorer(given, texts, unfinished), dtype=np.float64)

    def finish(self) -> tuple[Report, list[torch.Tensor]]:
        """Score what is finished and choose the best of each source."""
        if self.config.num_beams > 1:
            self.finished = [
                sorted(found, key=lambda one: -one[0])[: self.config.num_beams] for found in self.finished
            ]
        source = np.repeat(np.arange(len(self.finished)), [len(found) for found in self.finished])
        everything = [sequence for found in self.finished for _, _, sequence in found]
        texts = self._texts(everything)
        scores = self._score(source, texts, False)
        by_source = [np.flatnonzero(source == number) for number in range(len(self.finished))]
        best = [int(scores[rows].argmax()) for rows in by_source]
        report = Report(
            [[texts[row] for row in rows] for rows in by_source],
            [scores[rows] for rows in by_source],
            [np.array([total for _, total, _ in found]) for found in self.finished],
            best,
            self.decoder.steps,
            self.scored,
            self.alive,
        )
        return report, [found[number][2] for found, number in zip(self.finished, best, strict=True)]
