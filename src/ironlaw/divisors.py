"""The divisors of a whole number."""

from __future__ import annotations

from functools import cache


@cache
def divisors(number: int) -> tuple[float, ...]:
    """Every divisor, in order. Takes as many steps as the root of the largest prime factor but one.

    >>> divisors(12)
    (1.0, 2.0, 3.0, 4.0, 6.0, 12.0)
    """
    found, prime = [1], 2
    while number > 1:
        if prime * prime > number:
            prime = number  # what is left is a prime
        powers = [1]
        while number % prime == 0:
            number //= prime
            powers.append(powers[-1] * prime)
        found = [divisor * power for divisor in found for power in powers]
        prime += 1
    return tuple(float(divisor) for divisor in sorted(found))
