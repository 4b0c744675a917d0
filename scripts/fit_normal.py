#!/usr/bin/env python3
"""Prints the coefficients of src/base/philox.h (normal_from_word) with the error of each fit.

Weighted rational least squares at Chebyshev nodes, iterated towards the minimax of the relative error
(Sanathanan-Koerner denominators, Lawson weights). Needs mpmath; takes a few seconds.
"""

import struct

from mpmath import atanh, cos, erfc, erfinv, exp, log, matrix, mp, mpf, pi, polyval, qr_solve, sqrt

mp.dps = 40
SPLIT = mpf(7) / 16  # |probability - 1/2| up to which the central form is used


def quantile(p):
    """z < 0 with normal distribution function p, 0 < p < 1/2."""
    if p > mpf("1e-3"):
        return sqrt(2) * erfinv(2 * p - 1)
    t = sqrt(-2 * log(p))
    z = -(t - log(2 * pi * t * t) / (2 * t))
    for _ in range(60):  # Newton on the logarithm
        f = erfc(-z / sqrt(2)) / 2
        step = (log(f) - log(p)) * f * sqrt(2 * pi) * exp(z * z / 2)
        z -= step
        if abs(step) < mpf(10) ** -30:
            break
    return z


def central(r):
    """z / q as a function of r = SPLIT^2 - q^2, q = probability - 1/2."""
    q = sqrt(max(SPLIT * SPLIT - r, mpf(0)))
    return sqrt(2 * pi) if q < mpf("1e-12") else -quantile(mpf(1) / 2 - q) / q


def tail(t):
    """-z as a function of t = sqrt(-2 log p)."""
    return -quantile(exp(-t * t / 2))


def log_series(s2):
    """(2 artanh(s) / s - 2) / s^2 as a function of s^2."""
    s = sqrt(s2)
    return (2 * atanh(s) / s - 2) / s2


def fit(function, low, high, top, bottom, nodes=100, rounds=20):
    """(largest relative error, numerator, denominator), coefficients from the constant up."""
    low, high = mpf(low), mpf(high)
    xs = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * nodes)) for i in range(nodes)]
    ys = [function(x) for x in xs]
    denominators = [mpf(1)] * nodes
    lawson = [mpf(1)] * nodes
    best = None
    for _ in range(rounds):
        a, b = matrix(nodes, top + 1 + bottom), matrix(nodes, 1)
        for i, (x, y) in enumerate(zip(xs, ys)):
            scale = sqrt(lawson[i]) / (abs(y) * denominators[i])
            for j in range(top + 1):
                a[i, j] = scale * x**j
            for j in range(1, bottom + 1):
                a[i, top + j] = -scale * y * x**j
            b[i] = scale * y
        solution, _ = qr_solve(a, b)
        p = [solution[j] for j in range(top + 1)]
        q = [mpf(1)] + [solution[top + j] for j in range(1, bottom + 1)]
        denominators = [abs(polyval(q[::-1], x)) for x in xs]
        errors = [abs(polyval(p[::-1], x) / polyval(q[::-1], x) / y - 1) for x, y in zip(xs, ys)]
        worst = max(errors)
        if best is None or worst < best[0]:
            best = (worst, p, q)
        floor = worst / 100
        total = sum(weight * (error + floor) for weight, error in zip(lawson, errors))
        lawson = [weight * (error + floor) / total * nodes for weight, error in zip(lawson, errors)]
    return best


def show(name, result):
    def float32(x):
        return struct.unpack("f", struct.pack("f", float(x)))[0]

    print(f"{name}: relative error {mp.nstr(result[0], 3)}")
    for label, coefficients in (("numerator", result[1]), ("denominator", result[2])):
        print(f"  {label:12}" + ", ".join(f"{float32(c):.9g}F" for c in coefficients))


if __name__ == "__main__":
    show("central", fit(central, 0, SPLIT * SPLIT, 3, 3))
    show("tail", fit(tail, sqrt(-2 * log(mpf(1) / 2 - SPLIT)), "6.77", 3, 2))
    show("log", fit(log_series, "1e-9", ((sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1)) ** 2, 2, 0, nodes=60))
