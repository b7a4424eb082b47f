import numpy as np

from data import randomness


def test_mixing_is_splitmix64():
    # First outputs of the reference implementation from state 0 (prng.di.unimi.it/splitmix64.c).
    first = randomness._mix(np.zeros(1, np.uint64))[0]
    assert first == 0xE220A8397B1DCDAF


def test_draws_depend_on_their_address_alone():
    together = randomness.uniform(7, 3, np.arange(100), 2, 5)
    alone = randomness.uniform(7, 3, np.array([41]), 2, 5)
    assert (together[41] == alone[0]).all()
    for other in (randomness.uniform(8, 3, [41], 2, 5), randomness.uniform(7, 4, [41], 2, 5),
                  randomness.uniform(7, 3, [42], 2, 5), randomness.uniform(7, 3, [41], 1, 5)):
        assert (other[0] != alone[0]).all()


def test_draws_are_uniform_and_uncorrelated():
    draws = randomness.uniform(1, 0, np.arange(200_000), 1, 2)
    # Standard errors: 0.289/sqrt(n) of the mean, 1/sqrt(n) of the correlation; five of each.
    assert abs(draws.mean(axis=0) - 0.5).max() < 5 * 0.289 / 200_000 ** 0.5
    assert abs(np.corrcoef(draws.T)[0, 1]) < 5 / 200_000 ** 0.5
    assert draws.min() >= 0 and draws.max() < 1
    counts = np.histogram(draws[:, 0], bins=20, range=(0, 1))[0]
    chi_squared = ((counts - 10_000) ** 2 / 10_000).sum()
    assert chi_squared < 43.8  # 0.1 % quantile of 19 degrees of freedom


def test_permutation_visits_every_sample_once():
    order = randomness.permutation(5, 2, 1000)
    assert sorted(order) == list(range(1000))
    assert list(order) != list(randomness.permutation(5, 3, 1000))
