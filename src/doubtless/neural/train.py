"""Training: one plain loop on Hugging Face Accelerate, the same for every estimator.

Whatever is random (the order of batches, prefixes, dropout) is a function of the seed, the epoch and the
step. A run that is killed and resumed therefore ends with the very weights of a run that was not.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, gather_object
from safetensors.torch import load_file
from torch import nn

from doubtless.errors import DoubtlessError, InputError
from doubtless.formats.words import counted
from doubtless.neural import corpus, data, optimise
from doubtless.neural.cache import States, cached_states
from doubtless.neural.checkpoint import Model, new_model, save
from doubtless.neural.data import Examples, Ints, Layout, Rows
from doubtless.neural.optimise import Objective, Progress, finished, learnt_weights
from doubtless.neural.schedule import Plan, TrainingConfig, better, differing, encoder_rests, rate_factor

Say = Callable[[str], None]
Watch = Callable[[str, float], None]


@dataclass(frozen=True)
class Result:
    """What a run came to; ``figures`` are those of the best model on the validation rows."""

    model: Path
    steps: int
    seconds: float
    metric: str
    best: float | None
    best_step: int
    figures: Mapping[str, Any]
    stopped_early: bool
    rows: int
    dev_rows: int
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "model": str(self.model)}


@dataclass(eq=False)
class _Run:
    """Everything that stays the same while a run lasts."""

    plan: Plan
    accelerator: Accelerator
    model: Model
    objective: nn.Module
    optimiser: Any
    parts: list[Rows]
    mean: float
    sd: float
    settings: dict[str, Any]
    notes: tuple[str, ...]
    states: dict[str, States] = field(default_factory=dict)

    @property
    def train(self) -> Rows:
        return self.parts[0]

    @property
    def dev(self) -> Rows:
        return self.parts[1]

    @property
    def training(self) -> TrainingConfig:
        return self.plan.training

    @property
    def checkpoints(self) -> Path:
        return self.plan.output / "checkpoints"

    def layout(self, epoch: int) -> Layout:
        """The training rows as sequences; of prefix training, as this epoch shows them."""
        if self.train.fertility is None:
            return self.whole
        shares = data.prefix_shares(len(self.train), self.training.seed, epoch)
        return data.lay_out(self.train, self.model.config, self.model.tokens, shares)

    @cached_property
    def whole(self) -> Layout:
        return data.lay_out(self.train, self.model.config, self.model.tokens)

    @cached_property
    def dev_layout(self) -> Layout:
        return data.lay_out(self.dev, self.model.config, self.model.tokens)

    def examples(self, rows: Rows, layout: Layout, index: Ints, part: str) -> Examples:
        padding = self.model.tokens.padding
        return data.assemble(rows, layout, index, padding, self.states.get(part)).to(self.accelerator.device)


def train(
    plan: Plan,
    *,
    fresh: bool = False,
    say: Say = lambda sentence: None,
    watch: Watch = lambda stage, share: None,
) -> Result:
    """Train a model, or go on where a run was interrupted.

    Parameters
    ----------
    plan
        The model, the data and the training: :func:`doubtless.neural.schedule.read_plan`.
    fresh
        Start over, even if there are checkpoints.
    say, watch
        Told what a user should know, in sentences; told after each step which share of a stage
        (``states``, ``training``) is done.

    Returns
    -------
    Result
        The best model by the validation metric lies in ``output/model``.
    """
    with optimise.deterministic(plan.training.threads):
        run = _set_up(plan, say, watch)
        progress = _resume(run, fresh, say)
        training, began = plan.training, time.monotonic() - progress.seconds
        while not finished(training, progress):
            layout = run.layout(progress.epoch)
            cuts = data.batches(layout, training.seed, progress.epoch, *training.limits)
            steps = data.grouped(cuts, training.gradient_accumulation, run.accelerator.num_processes)
            for group in steps[progress.done :]:
                at = progress.epoch + progress.done / len(steps)
                progress.loss += _step(run, layout, group, progress.step, at)
                progress.losses += 1
                progress.step += 1
                progress.done += 1
                epoch_over = progress.done == len(steps)
                if epoch_over:
                    progress.epoch, progress.done = progress.epoch + 1, 0
                progress.seconds = time.monotonic() - began
                _keep_books(run, progress, at, epoch_over)
                watch("training", optimise.share_done(training, progress, len(steps)))
                if finished(training, progress):
                    break
        return _finish(run, progress)


def _set_up(plan: Plan, say: Say, watch: Watch) -> _Run:
    training = plan.training
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)  # resting layers have no gradient
    try:
        accelerator = Accelerator(mixed_precision=training.precision, kwargs_handlers=[unused])
    except ValueError as error:
        raise DoubtlessError(f"precision {training.precision} cannot be had ({error})") from None
    tell = say if accelerator.is_main_process else lambda sentence: None
    train_frame, dev_frame, notes = corpus.read_segments(plan)
    for note in notes:
        tell(note)
    model = new_model(plan.resolved_model, training.seed, plan.output.name)
    estimator = model.estimator
    # The encoder by the name it has in the file, not by its path here.
    estimator.config = replace(estimator.config, encoder=plan.model.encoder)
    if training.start:
        optimise.start_from(estimator, plan.folder / training.start, training)
    if training.freeze > estimator.encoder.depth:
        raise InputError(f"freeze = {training.freeze}, but the encoder has {estimator.encoder.depth} layers")
    parts = [data.rows_of(frame, plan.model, model.tokens) for frame in (train_frame, dev_frame)]
    mean, sd = data.spread_of(parts[0]) if training.standardise else (0.0, 1.0)
    parts = [rows.scaled(mean, sd) for rows in parts]
    fixed = optimise.fixed_digest(estimator, training)
    settings = optimise.settings_of(plan, parts, fixed, accelerator.num_processes)
    optimise.set_learning(estimator, training, encoder_rests=False)
    optimiser = torch.optim.AdamW(
        optimise.parameter_groups(estimator, training), weight_decay=training.weight_decay
    )
    objective, optimiser = accelerator.prepare(Objective(estimator, training), optimiser)
    run = _Run(plan, accelerator, model, objective, optimiser, parts, mean, sd, settings, tuple(notes))
    if training.cache_states:
        folder, padding = plan.output / "cache", model.tokens.padding
        with accelerator.main_process_first():
            for part, layout in (("train", run.whole), ("dev", run.dev_layout)):
                run.states[part] = cached_states(
                    estimator, layout.sequences, padding, training.freeze, folder, fixed, tell, watch
                )
    return run


def _resume(run: _Run, fresh: bool, say: Say) -> Progress:
    metrics, main = run.plan.output / "metrics.jsonl", run.accelerator.is_main_process
    if main and fresh:
        shutil.rmtree(run.checkpoints, ignore_errors=True)
    run.accelerator.wait_for_everyone()
    point, progress = optimise.last_point(run.checkpoints), Progress()
    if point is not None:
        weights, optimiser, progress, settings = optimise.load_point(point)
        wrong = differing(settings, run.settings)
        if wrong:
            raise DoubtlessError(f"{point}: made with another {', '.join(wrong)} (--fresh starts over)")
        run.model.estimator.load_state_dict(weights, strict=False)
        run.optimiser.load_state_dict(optimiser)
        if main:
            say(f"resumed from step {progress.step} ({point})")
    if main:
        # What an interrupted run wrote after its last checkpoint comes again.
        lines = metrics.read_text(encoding="utf-8").splitlines(True) if metrics.is_file() else []
        run.plan.output.mkdir(parents=True, exist_ok=True)
        kept = [line for line in lines if _written_by(line, progress.step)]
        metrics.write_text("".join(kept), encoding="utf-8")
    return progress


def _written_by(line: str, step: int) -> bool:
    """Whether a line of metrics is whole and not from after a step."""
    try:
        return line.endswith("\n") and int(json.loads(line)["step"]) <= step
    except (ValueError, LookupError, TypeError):
        return False


def _step(run: _Run, layout: Layout, group: list[Ints], step: int, at: float) -> float:
    """One step of the optimiser: the mean loss over the rows of its batches."""
    accelerator, training = run.accelerator, run.training
    optimise.set_learning(run.model.estimator, training, encoder_rests(training, at))
    optimise.set_rates(run.optimiser.param_groups, rate_factor(training, step, at))
    seed = np.random.SeedSequence([training.seed, step, accelerator.process_index])
    torch.manual_seed(int(seed.generate_state(1, np.uint64)[0]))
    mine = group[accelerator.process_index :: accelerator.num_processes]
    # Gradients are averaged over processes: the factor makes the step the mean over all of its rows.
    per_row = accelerator.num_processes / sum(len(index) for index in group)
    total = 0.0
    for number, index in enumerate(mine):
        last = number == len(mine) - 1
        with nullcontext() if last else accelerator.no_sync(run.objective):
            loss, _ = run.objective(run.examples(run.train, layout, index, "train"))
            loss = loss * (len(index) * per_row)
            accelerator.backward(loss)
        total += float(loss.detach())
    if not math.isfinite(total):
        raise DoubtlessError(f"the loss of step {step + 1} is not a number: try lower learning rates")
    if training.clip:
        accelerator.clip_grad_norm_(run.objective.parameters(), training.clip)
    run.optimiser.step()
    run.optimiser.zero_grad()
    return total


def _keep_books(run: _Run, progress: Progress, at: float, epoch_over: bool) -> None:
    """Validate, write a line of metrics and a checkpoint, each where it is due."""
    training, step = run.training, progress.step
    at_end = epoch_over or finished(training, progress)
    figures = None
    if at_end or _due(step, training.validate_every):
        figures = evaluate(run)
        _compare(run, progress, figures)
    if figures is not None or _due(step, training.log_every):
        line = {
            "step": step,
            "epoch": round(at, 4),
            "loss": progress.loss / progress.losses,
            "lr": run.optimiser.param_groups[0]["lr"],
            "seconds": round(progress.seconds, 2),
            **({} if figures is None else {"dev": figures}),
        }
        progress.loss, progress.losses = 0.0, 0
        if run.accelerator.is_main_process:
            with open(run.plan.output / "metrics.jsonl", "a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
    if at_end or _due(step, training.checkpoint_every) or finished(training, progress):
        run.accelerator.wait_for_everyone()
        if run.accelerator.is_main_process:
            weights = learnt_weights(run.model.estimator, training)
            optimise.save_point(run.checkpoints, weights, run.optimiser.state_dict(), progress, run.settings)
            for old in run.checkpoints.glob("best-*.safetensors"):
                if old != _best(run, progress):
                    old.unlink()


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _best(run: _Run, progress: Progress) -> Path:
    return run.checkpoints / f"best-{progress.best_step}.safetensors"


def _compare(run: _Run, progress: Progress, figures: dict[str, Any]) -> None:
    """Keep the weights if they are the best so far; else patience runs out a little."""
    value = figures[run.training.metric]
    if not better(run.training.metric, value, progress.best):
        progress.waited += 1
        return
    progress.best, progress.best_step, progress.waited, progress.figures = value, progress.step, 0, figures
    if run.accelerator.is_main_process:
        optimise.save_weights(_best(run, progress), learnt_weights(run.model.estimator, run.training))


@torch.no_grad()
def evaluate(run: _Run) -> dict[str, Any]:
    """Loss and agreement with humans on the validation rows, whole translations without dropout."""
    rows, layout, accelerator = run.dev, run.dev_layout, run.accelerator
    objective = accelerator.unwrap_model(run.objective).eval()
    pieces = data.cut(layout, np.argsort(layout.lengths, kind="stable"), *run.training.limits)
    mine = []
    for index in pieces[accelerator.process_index :: accelerator.num_processes]:
        loss, outputs = objective(run.examples(rows, layout, index, "dev"))
        mine.append((index, float(loss), {name: value.cpu().numpy() for name, value in outputs.items()}))
    loss, confusion, outputs = 0.0, np.zeros(4), {}
    for index, value, found in gather_object(mine):
        loss += value * len(index) / len(rows)
        confusion += found.pop("confusion", 0)
        for name, numbers in found.items():
            exits, segments, *rest = numbers.shape
            # The passes of a joint model are segments of their own: the row has their mean.
            means = numbers.reshape(exits, len(index), segments // len(index), *rest).mean(axis=2)
            outputs.setdefault(name, np.zeros((exits, len(rows), *rest)))[:, index] = means
    figures = {"loss": loss, **optimise.agreement(run.model.config, outputs, rows, run.mean, run.sd)}
    if rows.labels is not None:
        figures["tags_mcc"] = optimise.matthews(*confusion)
    return {name: optimise.plain(value) for name, value in figures.items()}


def _finish(run: _Run, progress: Progress) -> Result:
    """Write the best model of the run with its card."""
    plan, estimator = run.plan, run.model.estimator
    result = Result(
        model=plan.output / "model",
        steps=progress.step,
        seconds=round(progress.seconds, 1),
        metric=plan.training.metric,
        best=progress.best,
        best_step=progress.best_step or progress.step,
        figures=progress.figures,
        stopped_early=0 < plan.training.patience <= progress.waited,
        rows=len(run.train),
        dev_rows=len(run.dev),
        notes=run.notes,
    )
    run.accelerator.wait_for_everyone()
    if run.accelerator.is_main_process:
        if progress.best is not None:
            estimator.load_state_dict(load_file(_best(run, progress)), strict=False)
        extra: dict[str, Any] = {"trained": {"steps": result.best_step, "figures": dict(result.figures)}}
        if plan.training.standardise:
            estimator.config = replace(estimator.config, score_mean=run.mean, score_sd=run.sd)
        part = plan.output / "model.part"
        shutil.rmtree(part, ignore_errors=True)
        save(Model(estimator.eval(), run.model.tokens, run.model.name, card(plan, result), extra), part)
        shutil.rmtree(result.model, ignore_errors=True)
        part.rename(result.model)
    run.accelerator.wait_for_everyone()
    return result


def card(plan: Plan, result: Result) -> str:
    """The card of a trained model: what it was trained on, how well it does, with which settings."""
    given = plan.data
    figures = [
        f"| {name} | {value:.4f} |" for name, value in result.figures.items() if isinstance(value, float)
    ]
    described = json.dumps(plan.as_json(), indent=1, ensure_ascii=False)
    lines = [
        f"# {plan.output.name}",
        "",
        f"A quality estimator of machine translations ({plan.model.uses}, {plan.model.outputs}) on the"
        f" encoder {plan.model.encoder}, trained with doubtless.",
        "",
        f"- Trained on {counted(result.rows, 'row')} of {', '.join(given.train)}"
        f"{f' where {given.where}' if given.where else ''}; human scores: `{given.human}`.",
        f"- Validated on {counted(result.dev_rows, 'row')} of"
        f" {', '.join(given.dev or given.train)}{f' where {given.dev_where}' if given.dev_where else ''}.",
        f"- {counted(result.steps, 'step')} in {result.seconds:,.0f} s; this is step {result.best_step},"
        f" the best by {result.metric}. The figures below are of the rows that chose it.",
        *(f"- {note}." for note in result.notes),
        *(["- Prefixes of translations were shown in training."] if plan.model.partial else []),
        "",
        "| figure | validation rows |",
        "|---|---|",
        *figures,
        "",
        "```json",
        described,
        "```",
        "",
    ]
    return "\n".join(lines)
