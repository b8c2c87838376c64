"""Closed forms of queueing theory that runs are held against, and a test of goodness of fit; nothing of the simulator."""

from __future__ import annotations

import heapq
import math

import numpy as np


# ---------------------------------------------------------------------- sample paths
def admissions(arrival_us, service_us, c):
    """When each is admitted to one of ``c`` places in order of arrival (Kiefer and Wolfowitz; Lindley for one place)."""
    free, found = [0] * c, []
    for arrives, takes in zip(arrival_us.tolist(), service_us.tolist(), strict=True):
        found.append(max(arrives, heapq.heappop(free)))
        heapq.heappush(free, found[-1] + takes)
    return found


# ---------------------------------------------------------------------- distributions
def geometric(most, mean):
    """Probabilities of 1 ... ``most`` of a geometric number, cut there."""
    p = np.full(most, 1 / mean) * (1 - 1 / mean) ** np.arange(most)
    p[-1] = 1 - p[:-1].sum()
    return p


def chi_square_tail(counts, mean):
    """The probability of a larger chi-square of these counts against Poisson's, in an odd number of cells of 20 or more each."""
    probability = np.exp(-mean + np.arange(200) * math.log(mean) - np.array([math.lgamma(k + 1) for k in range(200)]))
    cells, cell = [], []
    for k in range(200):
        cell.append(k)
        if probability[cell].sum() * len(counts) >= 20 and probability[k + 1:].sum() * len(counts) >= 20:
            cells, cell = [*cells, cell], []
    cells.append(cell)
    if len(cells) % 2 == 0:
        cells = [*cells[:-2], cells[-2] + cells[-1]]
    assert len(cells) >= 5
    seen = np.bincount(counts, minlength=200)
    wanted = np.array([probability[cell].sum() for cell in cells]) * len(counts)
    found = sum((seen[cell].sum() - want) ** 2 / want for cell, want in zip(cells, wanted, strict=True))
    half = found / 2                                   # of an even number of degrees of freedom there is a closed form
    return math.exp(-half) * sum(half**i / math.factorial(i) for i in range((len(cells) - 1) // 2))


# ---------------------------------------------------------------------- c at a time
def stationary(step, most=400):
    """The distribution of a chain on 0 ... most - 1 from the rows ``step(n)``."""
    chain = np.array([step(n) for n in range(most)])
    chain /= chain.sum(axis=1, keepdims=True)
    equations = np.vstack((chain.T - np.eye(most), np.ones(most)))
    return np.linalg.lstsq(equations, np.append(np.zeros(most), 1.0), rcond=None)[0]


def poisson(mean, most):
    return np.exp(-mean + np.arange(most) * math.log(mean) - np.array([math.lgamma(k + 1) for k in range(most)]))


def in_line(step, c, most=200):
    """Mean number of those that wait for one of ``c`` places."""
    return float(stationary(step, most) @ np.maximum(np.arange(most) - c, 0))


def constant(a, size, c, most=200):
    """Crommelin's chain: all that are served now have gone when as much time has passed as a service takes."""
    new = np.append(poisson(a * size, most), np.zeros(most))
    return lambda n: new[:most] if n <= c else np.append(np.zeros(n - c), new[: most - n + c])


def memoryless(a, p, c, most=200):
    """Each of those served ends in this step with probability p."""
    new = poisson(a, most)

    def row(n):
        k = min(n, c)
        gone = np.array([math.comb(k, i) * p**i * (1 - p) ** (k - i) for i in range(k + 1)])
        left = np.zeros(n + 1)
        left[n - np.arange(k + 1)] = gone
        return np.convolve(left, new)[:most]
    return row


def erlang_c(load, c):
    """Erlang's mean queue: the probability to wait, times load / (1 - load)."""
    terms = [(load * c) ** k / math.factorial(k) for k in range(c)]
    last = (load * c) ** c / math.factorial(c) / (1 - load)
    return last / (sum(terms) + last) * load / (1 - load)
