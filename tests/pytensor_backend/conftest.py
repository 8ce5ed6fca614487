"""Functions compiled for a device, beside the same functions in host PyTensor."""

from contextlib import suppress

import pytest

with suppress(ImportError):  # without PyTensor every file is skipped
    from pytensor.configdefaults import config

    import gpuinterop.pytensor as backend

    # Host functions run in Python and NumPy: no test needs their C code, which takes seconds to compile.
    config.cxx = ""
    config.blas__ldflags = ""
    config.on_opt_error = (
        "raise"  # PyTensor only reports an error of a rewrite, and goes on without it
    )


@pytest.fixture
def script(tmp_path):
    """Writes the text of a program to a file."""

    def written(text: str):
        file = tmp_path / "old.py"
        file.write_text(text)
        return file

    return written


@pytest.fixture
def on_device(device):
    """Compile for the device, with float32 shared variables there."""
    floats = config.floatX
    backend.use(device)
    yield device
    backend.unuse()
    config.allow_gc, config.floatX = True, floats
