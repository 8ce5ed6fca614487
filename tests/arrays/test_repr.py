"""The repr of objects that are not arrays: one line that says what they do."""

import threading

import gpuinterop as gi


def test_kernels_show_their_declaration():
    axpy = gi.ElementwiseKernel("float32 a, T x", "T y, int32 z", "y = a * x; z = 1", "axpy")
    assert repr(axpy) == "<ElementwiseKernel axpy(float32 a, T x) -> T y, int32 z>"
    assert repr(gi.RawKernel("one line", "one")) == "<RawKernel one of 1 line of CUDA C++>"
    assert repr(gi.RawKernel("a\nb", "two")) == "<RawKernel two of 2 lines of CUDA C++>"
    assert repr(gi.fuse(lambda x, y=2: x)).endswith("<lambda>(x, y=2)>")


def test_captures_count_in_english():
    x = gi.zeros(3, device="cpu")
    assert repr(gi.capture(lambda a: a + a, x)) == "<Capture on cpu: 1 node>"
    assert repr(gi.capture(lambda a: (a + a, a - a), x)) == "<Capture on cpu: 2 nodes>"
    assert repr(gi.Capture("cpu")) == "<Capture on cpu: not recorded>"


def test_a_block_decorates_calls_that_overlap():
    x = gi.zeros(3, device="cpu")
    inside, done, errors = threading.Event(), threading.Event(), []

    @gi.no_copies()
    def waits():
        inside.set()
        done.wait(20)
        try:
            x.copy()
        except gi.CopyForbiddenError as error:
            errors.append(error)

    @gi.no_copies()
    def ends():
        return 5

    thread = threading.Thread(target=waits)
    thread.start()
    assert inside.wait(20)
    assert ends() == 5
    x.copy()  # allowed in this thread again
    done.set()
    thread.join()
    assert len(errors) == 1
