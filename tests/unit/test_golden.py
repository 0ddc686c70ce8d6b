"""The files of tests/golden, and the tour that quotes them, are what the code makes. `make golden` rewrites them."""

import pytest
import torch

from tests.golden import regenerate

pytestmark = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="graphs are spelled as torch 2.13 spells them")


@pytest.fixture(scope="module")
def stages():
    return regenerate.stages()


def test_golden_files(stages):
    changed = [name for name, text in stages.items() if (regenerate.HERE / name).read_text() != text]
    assert not changed, f"{changed} changed: if that is meant, run `make golden` and show the difference in the change"


def test_no_stale_golden_file(stages):
    assert {path.name for path in regenerate.HERE.glob("[0-9]*")} == set(stages)


def test_the_tour_quotes_them(stages):
    tour = regenerate.TOUR.read_text()
    assert len(regenerate.QUOTATION.findall(tour)) >= 6
    assert regenerate.quoted(tour, stages) == tour


def test_stages_are_pure(stages):
    """A second run gives the same text."""
    assert regenerate.stages() == stages
