"""no_copies, count_copies and log_transfers: across converters, per thread."""

from pathlib import Path

import numpy as np
from helpers.threads import in_thread

import gpuinterop as gi
from gpuinterop import _core, converters
from gpuinterop.arrays import copy_tracking


def reversed_array():
    return converters.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))[:, ::-1]


def test_counts_nest_and_end_out_of_order():
    x = reversed_array()
    with gi.count_copies() as outer:
        converters.to_numpy(x)
        inner = gi.count_copies()
        count = inner.__enter__()
        x.copy()
        inner.__exit__(None, None, None)
        x.copy()
    assert (count.count, count.bytes) == (1, 24)
    assert (outer.count, outer.bytes) == (2, 48)


def test_a_block_in_a_generator_ends_in_another_thread():
    def within(block):
        with block():
            yield

    x = reversed_array()
    counts = []
    for block in (gi.no_copies, gi.count_copies, gi.log_transfers):
        generator = within(block)
        next(generator)

        def end(generator=generator):
            generator.close()
            with gi.count_copies() as c:
                x.copy()
            counts.append(c.count)

        in_thread(end)
        with gi.count_copies() as c:
            x.copy()
        counts.append(c.count)
    assert counts == [1] * 6
    assert not _core._copy_scopes()


def test_core_calls_python_only_in_an_active_copy_scope():
    asked = []
    _core.set_hooks(copied=lambda *call: asked.append(call))
    try:
        reversed_array().copy()
        assert asked == []
        with gi.count_copies():
            reversed_array().copy()
        assert len(asked) == 1
    finally:
        _core.set_hooks(copied=copy_tracking.report_copy)


def test_transfer_log_names_the_call():
    with gi.log_transfers() as t:
        copy_tracking.report_copy("host", 8, "copy")
        copy_tracking.report_copy("host_to_device", 64, "to_device")
        copy_tracking.report_copy("device_to_host", 32, "numpy.asarray")
    assert [entry.kind for entry in t] == ["host_to_device", "device_to_host"]
    assert (len(t), t.bytes, t[0].where) == (2, 96, "to_device")
    assert f"{Path(__file__).name}:" in t[0].caller
    assert "host to device: 64 bytes by to_device at" in str(t)
    with gi.log_transfers() as quiet:
        reversed_array().copy()
    assert str(quiet) == "no transfers between host and device"
