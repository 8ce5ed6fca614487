"""test_reduce_methods.py on the fake driver: plans, launches, scratch memory and kernels of the CUDA path.

Run by test_on_fake_reduce.py in a process of its own. A "cubin" here is the kernel's text compiled by g++.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))
sys.path.append(str(Path(__file__).parents[1] / "capture"))

import hostkernels
from reduce_shim import fake_image
from test_arguments_of_replays import *  # noqa: F403
from test_captured_sequences import (  # noqa: F401
    test_a_replay_inside_a_capture_is_part_of_it,
    test_a_replay_inside_copies_its_arguments_at_each_replay,
    test_take_and_kernels_keep_what_they_use,
)
from test_complex_reductions import *  # noqa: F403
from test_fused_reductions import *  # noqa: F403
from test_numbers_in_captures import *  # noqa: F403
from test_numpy_functions import *  # noqa: F403
from test_one_launch import *  # noqa: F403
from test_reduce_arguments import *  # noqa: F403
from test_reduce_methods import *  # noqa: F403
from test_selected import *  # noqa: F403
from test_staged_functions import *  # noqa: F403
from test_staged_functions import MIXED, staged_equals_steps

from gpuinterop.ops import reduction_dispatch

hostkernels.install()


# A compilation for each case: a minute and more.
for _many in (
    "test_a_reduced_result",
    "test_dtypes_are_those_of_the_steps",
    "test_dtypes_of_stages_are_those_of_the_steps",
    "test_equal_to_float64_and_to_the_steps",
    "test_follow_numpy",
    "test_gpuarray_has_numpys_dtypes",
    "test_more_reduced_values_than_a_kernel_reads",
    "test_more_streams_than_sets_of_tickets",
    "test_cudandarrays_stay_what_they_are",
    "test_operands_of_other_kinds",
    "test_shapes_and_dtypes_may_be_asked_for",
    "test_order_is_real_part_first",
    "test_several_axes",
    "test_where_is_numpys",
):
    globals()[_many] = pytest.mark.slow(globals()[_many])


@pytest.fixture
def device() -> str:
    return "cuda:0"


@pytest.fixture(autouse=True)
def _kernels_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction_dispatch, "compile_source", fake_image)


@pytest.mark.slow  # a minute of fibers on a slow machine
def test_logistic_regression_as_a_graph_of_three_kernels(device: str) -> None:
    import test_examples  # beside this file on the path that test_reduce_on_fake.py sets

    test_examples.same_training(test_examples.example("logistic_regression"), 12, device)


@settings(deadline=None, max_examples=4, derandomize=True)
@given(MIXED)
def test_random_stages(mixed) -> None:
    staged_equals_steps("cuda:0", *mixed)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(MIXED)
def test_many_random_stages(mixed) -> None:
    staged_equals_steps("cuda:0", *mixed)
