"""Losses against closed forms: what they are worth, what they are blind to, where their optimum lies."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from doubtless.neural import losses  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402

HUMAN = torch.tensor([0.2, -1.0, 0.7, 1.5])


def leaf(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def minimised(loss, *parameters):
    """Find the optimum of a smooth loss."""
    optimiser = torch.optim.LBFGS(parameters, max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)
    return [parameter.detach() for parameter in parameters]


def test_squared_is_the_mean_over_rows_and_the_sum_over_exits():
    score = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.2, -1.0, 0.7, 2.5]])
    expected = float((HUMAN**2).mean()) + 0.25
    assert float(losses.squared(score, HUMAN)) == pytest.approx(expected)


def test_instant_confidence_is_equation_4():
    score, error = torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([[0.1, 0.5, 0.5, 0.0]])
    first = np.mean([0.04, 1.0, 0.09, 0.25])
    second = np.mean([0.01, 0.25, 0.04, 0.25])
    found = losses.instant_confidence(score, error, HUMAN, beta=0.75)
    assert float(found) == pytest.approx(first + 0.75 * second, rel=1e-6)


@pytest.mark.parametrize("confidence", [losses.instant_confidence, losses.self_confidence])
def test_the_confidence_term_sends_no_gradient_through_the_score(confidence):
    human = HUMAN.double()
    with_term, without, error = leaf(3, 4), leaf(3, 4), leaf(3, 4, seed=1)
    confidence(with_term, error, human, 0.75).backward()
    losses.squared(without, human).backward()
    torch.testing.assert_close(with_term.grad, without.grad)
    assert error.grad is not None
    assert bool((error.grad != 0).any())


def test_beta_weighs_the_gradient_of_the_error():
    human, score = HUMAN.double(), leaf(1, 4)
    one, two = leaf(1, 4, seed=1), leaf(1, 4, seed=1)
    losses.instant_confidence(score, one, human, 0.25).backward()
    losses.instant_confidence(score, two, human, 0.75).backward()
    torch.testing.assert_close(3 * one.grad, two.grad)


def test_self_confidence_measures_errors_against_the_last_exit():
    score = torch.tensor([[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]])
    error = (score - score[-1:]).abs()
    assert float(losses.self_confidence(score, error, HUMAN, 5.0)) == pytest.approx(
        float(losses.squared(score, HUMAN))
    )


def test_both_confidences_have_a_term_for_humans_and_one_for_the_last_exit():
    score, error, change = (leaf(3, 5, seed=seed) for seed in (1, 2, 3))
    human = leaf(5, seed=4).detach()
    found = losses.both_confidences(score, error, change, human, 0.5)
    of_humans = losses.instant_confidence(score, error, human, 0.5)
    of_itself = losses.self_confidence(score, change, human, 0.5) - losses.squared(score, human)
    torch.testing.assert_close(found, of_humans + of_itself)


def test_auxiliary_terms_count_known_rows_only():
    prediction, target = leaf(2, 3), torch.tensor([1.0, float("nan"), 3.0])
    known = torch.tensor([0, 2])
    expected = losses.squared(prediction[:, known], target[known])
    torch.testing.assert_close(losses.auxiliary(prediction, target), expected)
    assert float(losses.auxiliary(prediction, torch.full((3,), float("nan")))) == 0.0


def test_heteroscedastic_is_the_gaussian_likelihood_without_its_constant():
    mean, variance = torch.tensor([[0.0, -0.5, 1.0, 1.0]]), torch.tensor([[1.0, 0.5, 2.0, 0.1]])
    gaussian = torch.distributions.Normal(mean, variance.sqrt())
    expected = -gaussian.log_prob(HUMAN).mean() - 0.5 * np.log(2 * np.pi)
    assert float(losses.heteroscedastic(mean, variance, HUMAN)) == pytest.approx(float(expected), rel=1e-5)


def test_the_optimum_of_heteroscedastic_regression_is_mean_and_residual_variance():
    human = leaf(1000).detach() * 2 + 3
    start = [torch.zeros(1, 1, dtype=torch.float64).requires_grad_() for _ in range(2)]

    def loss():
        mean, spread = (number.expand(1, 1000) for number in start)
        return losses.heteroscedastic(mean, spread.exp(), human)

    mean, spread = minimised(loss, *start)
    assert float(mean) == pytest.approx(float(human.mean()), abs=1e-3)
    assert float(spread.exp()) == pytest.approx(float(human.var(correction=0)), rel=1e-3)


def test_direct_uncertainty_is_equation_8_and_its_optimum_the_root_mean_square_of_the_residuals():
    residual, error = torch.tensor([0.5, 1.0]), torch.tensor([[1.0, 2.0]])
    expected = np.mean([0.25 / 2, 1 / 8 + np.log(4) / 2])
    assert float(losses.direct_uncertainty(error, residual)) == pytest.approx(expected, rel=1e-6)
    residuals = leaf(1000).detach().abs()
    level = torch.zeros(1, 1, dtype=torch.float64).requires_grad_()
    (found,) = minimised(lambda: losses.direct_uncertainty(level.exp().expand(1, 1000), residuals), level)
    assert float(found.exp()) == pytest.approx(float((residuals**2).mean().sqrt()), rel=1e-3)


def test_pinball_is_equation_9():
    quantiles, levels = torch.tensor([[[0.0, 1.0]] * 4]), torch.tensor([0.1, 0.9])
    pairs = [(0.0, 0.1), (1.0, 0.9)]
    rows = [sum((q - y) * ((y <= q) - t) for q, t in pairs) for y in HUMAN.tolist()]
    assert float(losses.pinball(quantiles, levels, HUMAN)) == pytest.approx(np.mean(rows), rel=1e-5)


def test_the_optimum_of_the_pinball_loss_is_the_quantile():
    human = torch.sort(leaf(201).detach()).values
    for level in (0.05, 0.5, 0.9):
        # The loss is linear between the observations: one of them is the optimum.
        worth = [losses.pinball(y.expand(1, 201, 1), torch.tensor([level]), human) for y in human]
        assert int(torch.stack(worth).argmin()) == pytest.approx(level * 200, abs=1)


def test_tags_are_weighted_and_tokens_without_a_label_do_not_count():
    logits = leaf(2, 3, 2)
    labels = torch.tensor([[-100, 0, 1], [-100, 1, -100]])
    weights = torch.tensor([1.0, 3.0], dtype=torch.float64)
    found = losses.tags(logits, labels, weights)
    found.backward()
    surprise = -torch.log_softmax(logits.detach(), dim=-1)
    expected = (surprise[0, 1, 0] + 3 * surprise[0, 2, 1] + 3 * surprise[1, 1, 1]) / 7
    assert float(found.detach()) == pytest.approx(float(expected))
    assert not logits.grad[:, 0].any()
    assert not logits.grad[1, 2].any()


OUTPUTS = {
    "score": lambda: {"score": leaf(2, 4)},
    "score+error": lambda: {"score": leaf(2, 4), "error": leaf(2, 4, seed=1)},
    "mean+variance": lambda: {"score": leaf(2, 4), "variance": leaf(2, 4, seed=1).exp()},
    "quantiles": lambda: {"score": leaf(2, 4), "quantiles": leaf(2, 4, 3)},
    "error": lambda: {"error": leaf(2, 4).exp()},
}


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_early_exit_sums_the_losses_of_the_layers(outputs):
    config = ModelConfig(outputs=outputs, exits="every")
    found, human = OUTPUTS[outputs](), HUMAN.double()
    alone = [losses.loss_of(config, {k: v[i : i + 1] for k, v in found.items()}, human) for i in range(2)]
    torch.testing.assert_close(losses.loss_of(config, found, human), alone[0] + alone[1])


def test_the_target_of_the_error_head_is_chosen_by_the_configuration():
    found, human = OUTPUTS["score+error"](), HUMAN.double()
    to_last = ModelConfig(outputs="score+error", exits="every", error_target="last")
    expected = losses.self_confidence(found["score"], found["error"], human, 0.5)
    torch.testing.assert_close(losses.loss_of(to_last, found, human, 0.5), expected)
