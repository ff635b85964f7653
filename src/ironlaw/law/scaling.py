"""How much to train what: parameters, tokens, compute and loss. The constants are those of published fits, cited with each law."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import flag, inside, ratio

# E, A, B, alpha, beta of L = E + A / N^alpha + B / D^beta, by fit: 0 Hoffmann, with the digits of its TeX source, 1 Besiroglu
_E, _A, _B = np.array([1.6934, 1.8172]), np.array([406.4, 482.01]), np.array([410.7, 2085.43])
_ALPHA, _BETA = np.array([0.3392, 0.3478]), np.array([0.2849, 0.3658])


def _of(constants, fit):
    return np.where(np.equal(fit, 1), constants[1], constants[0])


def parameter_part(parameters, fit):
    """What too few parameters add to the loss: ``A / N^alpha``.

    Parameters
        parameters [1]: parameters N, >= 1
        fit [1]: 0 Hoffmann et al. (406.4, 0.3392), 1 Besiroglu et al. (482.01, 0.3478), 0 or 1
    Returns [1]: part of the loss, nats for each token
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, equation 10, https://arxiv.org/abs/2203.15556;
        Besiroglu et al., Chinchilla Scaling: A replication attempt, 2024, https://arxiv.org/abs/2404.10102
    Leaves out: shape of the model, mixtures of experts, sizes beyond 70M to 16B parameters

    >>> round(float(parameter_part(1e9, 0)), 3), round(float(parameter_part(1e9, 1)), 3)
    (0.36, 0.357)
    """
    part = _of(_A, fit) * np.power(np.where(parameters >= 1, 1.0 * parameters, np.nan), -_of(_ALPHA, fit))
    return inside(part, parameters >= 1, flag(fit))


def token_part(tokens, fit):
    """What too few tokens add to the loss: ``B / D^beta``.

    Parameters
        tokens [token]: tokens D of the run, each seen once, >= 1
        fit [1]: 0 Hoffmann et al. (410.7, 0.2849), 1 Besiroglu et al. (2085.43, 0.3658), 0 or 1
    Offset [token]: a power of the tokens
    Returns [1]: part of the loss, nats for each token
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, equation 10, https://arxiv.org/abs/2203.15556;
        Besiroglu et al., Chinchilla Scaling: A replication attempt, 2024, https://arxiv.org/abs/2404.10102
    Leaves out: repeated data, quality of data, runs beyond 5B to 500B tokens

    >>> round(float(token_part(20e9, 0)), 3), round(float(token_part(20e9, 1)), 3)
    (0.477, 0.356)
    """
    part = _of(_B, fit) * np.power(np.where(tokens >= 1, 1.0 * tokens, np.nan), -_of(_BETA, fit))
    return inside(part, tokens >= 1, flag(fit))


def loss(parameters, tokens, fit):
    """Loss of a model after training: ``E + A / N^alpha + B / D^beta``.

    Parameters
        parameters [1]: parameters N, >= 1
        tokens [token]: tokens D of the run, >= 1
        fit [1]: 0 Hoffmann et al. (E 1.6934), 1 Besiroglu et al. (E 1.8172), 0 or 1
    Offset [token]: a power of the tokens
    Returns [1]: loss, nats for each token of MassiveText
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, equation 10, https://arxiv.org/abs/2203.15556;
        Besiroglu et al., Chinchilla Scaling: A replication attempt, 2024, https://arxiv.org/abs/2404.10102
    Leaves out: other data and tokenizers, whose losses differ: compare losses of one fit only

    >>> round(float(loss(70e9, 1.4e12, 0)), 3)  # Chinchilla
    1.921
    """
    value = _of(_E, fit) + parameter_part(parameters, fit) + token_part(tokens, fit)
    return inside(value, parameters >= 1, tokens >= 1, flag(fit))


def parameters_of_part(loss_part, fit):
    """Parameters that leave this part of the loss: ``(A / part)^(1 / alpha)``, the inverse of parameter_part.

    Parameters
        loss_part [1]: what too few parameters may add to the loss, > 0
        fit [1]: 0 Hoffmann et al., 1 Besiroglu et al., 0 or 1
    Returns [1]: parameters
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, equation 10, https://arxiv.org/abs/2203.15556
    Leaves out: what parameter_part leaves out

    >>> round(float(parameters_of_part(parameter_part(1e9, 1), 1)))
    1000000000
    """
    base = ratio(_of(_A, fit), 1.0 * loss_part)
    return inside(np.power(np.where(base > 0, base, np.nan), 1.0 / _of(_ALPHA, fit)), loss_part > 0, flag(fit))


def tokens_of_part(loss_part, fit):
    """Tokens that leave this part of the loss: ``(B / part)^(1 / beta)``, the inverse of token_part.

    Parameters
        loss_part [1]: what too few tokens may add to the loss, > 0
        fit [1]: 0 Hoffmann et al., 1 Besiroglu et al., 0 or 1
    Factor [token]: the unit of D
    Returns [token]: tokens
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, equation 10, https://arxiv.org/abs/2203.15556
    Leaves out: what token_part leaves out

    >>> round(float(tokens_of_part(token_part(20e9, 1), 1)) / 1e9, 6)
    20.0
    """
    base = ratio(_of(_B, fit), 1.0 * loss_part)
    return inside(np.power(np.where(base > 0, base, np.nan), 1.0 / _of(_BETA, fit)), loss_part > 0, flag(fit))


def optimal_parameters(operations, fit):
    """Parameters of least loss for a compute: ``(alpha A / (beta B))^(1 / (alpha + beta)) (C / 6)^(beta / (alpha + beta))``.

    Parameters
        operations [FLOP]: training compute C = 6 N D, > 0
        fit [1]: 0 Hoffmann et al. (approach 3), 1 Besiroglu et al., 0 or 1
    Offset [FLOP]: a power of the compute
    Returns [1]: parameters
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, equation 4, https://arxiv.org/abs/2203.15556;
        Besiroglu et al., Chinchilla Scaling: A replication attempt, 2024, https://arxiv.org/abs/2404.10102
    Leaves out: compute beyond 6e18 to 3e21 FLOP, which is extrapolated; inference

    >>> round(float(optimal_parameters(5.76e23, 0)) / 1e9, 1), round(float(optimal_parameters(5.76e23, 1)) / 1e9, 1)  # approach 3: 40
    (40.3, 72.2)
    """
    alpha, beta = _of(_ALPHA, fit), _of(_BETA, fit)
    scale = np.power(alpha * _of(_A, fit) / (beta * _of(_B, fit)), 1.0 / (alpha + beta))
    compute = np.where(operations > 0, operations / 6.0, np.nan)
    return inside(scale * np.power(compute, beta / (alpha + beta)), operations > 0, flag(fit))


def frontier_parameters(operations):
    """Optimal parameters on the frontier of training curves (approach 1): ``67e9 (C / 5.76e23)^0.5``.

    Parameters
        operations [FLOP]: training compute C, > 0
    Offset [FLOP]: a power of the compute
    Returns [1]: parameters
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, tables 2 and 3, https://arxiv.org/abs/2203.15556
    Leaves out: that the exponent has an error of its own (0.488 to 0.502)

    >>> round(float(frontier_parameters(1.23e22)) / 1e9, 2)  # table 3 says 10
    9.79
    """
    return inside(67e9 * np.sqrt(np.where(operations > 0, operations / 5.76e23, np.nan)), operations > 0)


def kaplan_parameters(operations):
    """Optimal parameters before Chinchilla, embeddings not counted: ``1.3e9 (C / 1 PFLOP/s-day)^0.73``.

    Parameters
        operations [FLOP]: training compute C at a batch far below the critical one, > 0
    Offset [FLOP]: a power of the compute
    Returns [1]: parameters without embeddings
    Source: Kaplan et al., Scaling Laws for Neural Language Models, 2020, appendix A, table 6, https://arxiv.org/abs/2001.08361
    Leaves out: a schedule that fits each length of run, and embeddings: why Hoffmann et al. find half the exponent on tokens missing

    >>> round(float(kaplan_parameters(8.64e19 * 1000)) / 1e9)
    201
    """
    return inside(1.3e9 * np.power(np.where(operations > 0, operations / 8.64e19, np.nan), 0.73), operations > 0)


def rule_tokens(parameters, tokens_per_parameter):
    """Tokens by the rule of thumb: ``r N``, with r = 20 Chinchilla's.

    Parameters
        parameters [1]: parameters N, >= 0
        tokens_per_parameter [token]: tokens r for each, > 0
    Returns [token]: tokens
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, table 3, https://arxiv.org/abs/2203.15556
    Leaves out: inference, for which one trains on more

    >>> float(rule_tokens(70e9, 20))  # worked in the study of ten sites
    1400000000000.0
    """
    return inside(1.0 * parameters * tokens_per_parameter, parameters >= 0, tokens_per_parameter > 0)


def rule_parameters(operations, tokens_per_parameter):
    """Parameters by the rule of thumb: ``sqrt(C / (6 r))``, from C = 6 N D and D = r N.

    Parameters
        operations [FLOP]: training compute C, >= 0
        tokens_per_parameter [token]: tokens r for each, > 0
    Offset [FLOP, token]: a root of both
    Returns [1]: parameters
    Source: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, table 3, https://arxiv.org/abs/2203.15556
    Leaves out: inference, for which one trains smaller models

    >>> round(float(rule_parameters(5.88e23, 20)) / 1e9, 6)
    70.0
    """
    square = ratio(1.0 * operations, 6.0 * tokens_per_parameter)
    return inside(np.sqrt(np.where(square >= 0, square, np.nan)), operations >= 0, tokens_per_parameter > 0)


def affordable_tokens(operations, parameters):
    """Tokens a compute pays for: ``C / (6 N)``.

    Parameters
        operations [FLOP]: training compute C, >= 0
        parameters [1]: parameters N, the active ones of a mixture, > 0
    Factor [token/FLOP]: 1 / 6, the inverse of 6 FLOP for each token and parameter
    Returns [token]: tokens
    Source: Kaplan et al., Scaling Laws for Neural Language Models, 2020, section 2.1 (C = 6 N D), https://arxiv.org/abs/2001.08361
    Leaves out: attention

    >>> float(affordable_tokens(5.88e23, 70e9)) / 1e12
    1.4
    """
    return inside(ratio(1.0 * operations, 6.0 * parameters), operations >= 0, parameters > 0)
