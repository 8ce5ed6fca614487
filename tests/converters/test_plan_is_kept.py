"""What explain() says is what happens, also in odd circumstances."""

from __future__ import annotations

import asyncio
import functools
import types

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters
from gpuinterop.converters import registry

FOREIGN = np.ones(3, ">f4")  # which only a copy makes an array of ours


class Own:
    def __init__(self, host):
        self.host = host


@pytest.fixture
def unplanned():
    """A converter without plan_from, as another package may have it."""
    module = types.ModuleType("own")
    module.from_own = lambda obj, copyif=False: gi.from_any(obj.host, copyif)
    module.to_own = lambda x, copyif=False: x
    rows, aliases = dict(registry._entries), dict(registry._aliases)
    converters.register(
        converters.Backend("own", "own", converter=module, matches=lambda o: isinstance(o, Own))
    )
    yield
    registry.register(rows["numpy"])
    registry._entries.clear()
    registry._entries.update(rows)
    registry._aliases.clear()
    registry._aliases.update(aliases)


def outcome(convert):
    with gi.count_copies() as copies:
        try:
            convert()
        except gi.GpuInteropError as error:
            return "refused", type(error), 0
    return ("copied" if copies.count else "shared"), None, copies.bytes


def agree(x, to, copyif, **options):
    with gi.count_copies() as copies:
        plan = gi.explain(x, to, copyif, **options)
    assert copies.count == 0  # asking copies nothing
    happened = outcome(lambda: gi.to(x, to, copyif, **options))
    assert happened == (plan.outcome, plan.error if plan.refused else None, plan.bytes)
    return plan


@pytest.mark.parametrize("copyif", [False, True])
@pytest.mark.parametrize("to", ["any", "cudandarray", "numpy"])
def test_a_converter_that_cannot_plan(unplanned, to, copyif):
    assert agree(Own(FOREIGN), to, copyif).copied == copyif
    assert agree(Own(np.ones(3, np.float32)), to, copyif).shared
    with gi.no_copies():
        assert gi.explain(Own(FOREIGN), to, copyif).refused


@pytest.mark.parametrize("to", ["any", "torch", "numpy", "buffer"])
def test_where_copies_are_forbidden_a_copy_is_a_refusal(to):
    if to == "torch":
        pytest.importorskip("torch")
    reversed_ = gi.from_any(np.ones((3, 4), np.float32)[:, ::-1])
    for x in (FOREIGN, reversed_):
        allowed = agree(x, to, True)
        with gi.no_copies():
            plan = agree(x, to, True)
            assert plan.refused == allowed.copied
        if plan.refused:
            assert plan.code == gi.CopyForbiddenError.reason
            assert plan.error is gi.CopyForbiddenError


def test_a_namespace_is_asked_without_a_copy():
    x = gi.ones((2, 3), device="cpu")
    assert agree(FOREIGN, "array_api", True, xp=np).copied
    assert agree(FOREIGN, "array_api", False, xp=np).refused
    assert agree(x, "array_api", True, xp=np).shared


@pytest.mark.parametrize("to", ["torch", "numpy"])
def test_an_empty_array_has_nothing_to_write_to(to):
    if to == "torch":
        pytest.importorskip("torch")
    empty = np.ones((0, 3), np.float32)
    empty.flags.writeable = False
    for copyif in (False, True):
        assert agree(empty, to, copyif).shared
        with gi.no_copies():
            assert gi.to(empty, to, copyif).shape == (0, 3)


def test_our_own_arrays_by_name():
    host = np.ones(3, np.float32)
    for name in ("cudandarray", "CudaNdarray"):
        assert type(gi.to(host, name)) is gi.CudaNdarray
        with pytest.raises(gi.DTypeError):
            gi.to(np.ones(3), name)
        with pytest.raises(gi.ArgumentTypeError):
            gi.to(host, name, layout="memory")
    assert type(gi.to(np.ones(3), "gpuinterop")) is gi.GpuArray
    assert gi.to(FOREIGN, "any", copyif=True).tolist() == [1, 1, 1]


# ---- blocks as decorators -----------------------------------------------------------------------


def generator():
    yield 1


async def coroutine():
    return 1


async def asynchronous_generator():
    yield 1


@pytest.mark.parametrize("block", [gi.no_copies, gi.count_copies, gi.log_transfers])
@pytest.mark.parametrize("function", [generator, coroutine, asynchronous_generator])
def test_what_works_later_cannot_be_decorated(block, function):
    with pytest.raises(gi.ArgumentTypeError, match=f"function {function.__name__}"):
        block()(function)


class Later:
    async def __call__(self):
        return 1


@pytest.mark.parametrize(
    "function", [functools.partial(coroutine), staticmethod(generator), Later()], ids=type
)
def test_nor_what_calls_it(function):
    with pytest.raises(gi.ArgumentTypeError, match="with statement inside"):
        gi.no_copies()(function)


def test_a_coroutine_may_hold_the_block_itself():
    async def inside():
        with gi.no_copies():
            return gi.ones(3, device="cpu").copy()

    with pytest.raises(gi.CopyForbiddenError):
        asyncio.run(inside())


def test_leaving_a_block_that_was_not_entered():
    block = gi.no_copies()
    with pytest.raises(gi.ArgumentTypeError, match="with statement"):
        block.__exit__(None, None, None)
    with block:
        pass
    with pytest.raises(gi.ArgumentTypeError, match="with statement"):
        block.__exit__(None, None, None)
