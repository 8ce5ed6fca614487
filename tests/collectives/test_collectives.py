"""Collectives over MPI and Gloo: every layout arrives as NumPy says; what cannot be sent is refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.mpi import load_mpi, mpirun

import gpuinterop as gi
from gpuinterop import collectives

PROGRAM = str(Path(__file__).with_name("every_layout.py"))


@pytest.mark.parametrize(("count", "long"), [(2, False), (3, False), (2, True)])
def test_every_layout_over_mpi(count, long):
    done = mpirun(count, PROGRAM, "mpi", *["long"] * long)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{104 if long else 624} cases, 0 wrong") == count


def tuned(**options):
    """The variables that choose the algorithms of Open MPI's component "tuned"."""
    chosen = {"use_dynamic_rules": 1, "priority": 100, **options}
    return {f"OMPI_MCA_coll_tuned_{k}": str(v) for k, v in chosen.items()}


def test_every_layout_over_the_algorithms_of_large_groups():
    """Cut by elements, Bruck's, sparbit: these read one side with the count or the datatype of the other."""
    options = {"gather_algorithm": 3, "gather_algorithm_segmentsize": 1024, "alltoall_algorithm": 3}
    done = mpirun(3, PROGRAM, "mpi", "long", env=tuned(allgather_algorithm=7, **options))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("104 cases, 0 wrong") == 3


LONG_BROADCAST = """
import numpy as np
from mpi4py import MPI
from gpuinterop import collectives
group = MPI.COMM_WORLD
rank = group.Get_rank()
values = np.arange(1 << 18, dtype="float32").reshape(512, 512)
for contiguous in range(3):  # the rank whose array is contiguous
    x = np.zeros((512, 1024), "float32")[:, ::2]
    x = np.ascontiguousarray(x) if rank == contiguous else x
    if rank == 0:
        x[...] = values
    collectives.broadcast(x, 0, group=group)
    print("same" if np.array_equal(x, values) else "wrong", flush=True)
"""


def test_a_long_broadcast_into_views_of_other_layouts():
    """Open MPI divides it by the count of elements, here by its algorithm scatter_allgather."""
    done = mpirun(3, "-c", LONG_BROADCAST, env=tuned(bcast_algorithm=8))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["same"] * 9


def test_every_layout_over_gloo(tmp_path):
    pytest.importorskip("torch.distributed")
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM, "gloo", str(rank), "2", str(tmp_path / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for process in processes:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, out + err
        assert "624 cases, 0 wrong" in out


# ---- one process: refusals, copies, empty arrays ------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "got"),
    [((2, 3), "24 bytes"), ((0,), "0 bytes"), ((4, 4), "MPI_ERR_TRUNCATE"), ((3, 2, 2), None)],
)
@pytest.mark.parametrize("layout", [np.s_[:, 2:6], np.s_[::-1, ::2]])
def test_a_message_of_another_size_is_refused(sent, got, layout, alone):
    out = zeros(3, 8)[layout]
    request = alone.Isend(np.ones(sent, "float32"), dest=0)
    if got is None:
        collectives.recv(out, 0, group=alone)
        assert out.tolist() == np.ones((3, 4)).tolist()
    else:
        with pytest.raises(gi.ShapeError) as raised:
            collectives.recv(out, 0, group=alone)
        words = str(raised.value)
        fits = (
            "a message that fits"
            if got == "MPI_ERR_TRUNCATE"
            else "48 bytes from rank 0, for shape (3, 4) of float32"
        )
        assert words.startswith(f"collectives.recv: expected {fits}\n  got: {got}")
        assert "fix: make the same call in every process" in words
    request.Wait()


LONGER_ON_RANK_1 = """
import sys
import numpy as np
from mpi4py import MPI
import gpuinterop as gi
group, name = MPI.COMM_WORLD, sys.argv[1]
x = np.ones(3 + group.rank)
out = np.zeros((2, *x.shape)) if name == "all_gather" or not group.rank else None
try:
    getattr(gi.collectives, name)(x, *[out] * (name != "all_reduce"), group=group)
except gi.ShapeError as e:
    print(group.rank, e, flush=True)
"""


@pytest.mark.parametrize("name", ["all_gather", "gather", "all_reduce"])
def test_an_error_of_mpi_says_where_and_how_to_fix_it(name):
    done = mpirun(2, "-c", LONGER_ON_RANK_1, name)
    assert done.returncode == 0, done.stdout + done.stderr
    words = f"0 collectives.{name}: expected a message that fits\n  got: MPI_ERR_TRUNCATE"
    assert done.stdout.startswith(words)


@pytest.mark.parametrize("name", ["gather", "scatter"])
def test_a_root_without_its_array_is_refused(name, alone):
    x, out = (zeros(2), None) if name == "gather" else (None, zeros(2))
    with pytest.raises(
        gi.ConversionTypeError, match=f"collectives.{name}: expected an array on rank 0"
    ):
        getattr(collectives, name)(x, out, 0, group=alone)


@pytest.fixture(scope="module")
def alone():
    """A group of one process."""
    return load_mpi().COMM_SELF


def zeros(*shape, dtype="float32"):
    return gi.zeros(shape, dtype=dtype, device="cpu")


def frozen(*shape):
    x = zeros(*shape)
    x.flags.writeable = False
    return x


OVERLAPPING = np.lib.stride_tricks.as_strided(np.zeros(4, "float32"), (3, 2), (4, 4))
REFUSED = {
    "a group of another class": (lambda g: collectives.send(zeros(2), 0, group="world"), gi.ArgumentTypeError),
    "a rank outside the group": (lambda g: collectives.send(zeros(2), 1, group=g), gi.BoundsError),
    "a negative rank": (lambda g: collectives.broadcast(zeros(2), -1, group=g), gi.BoundsError),
    "a rank that is no number": (lambda g: collectives.recv(zeros(2), "a", group=g), gi.BoundsError),
    "an unknown operation": (lambda g: collectives.all_reduce(zeros(2), op="mean", group=g), gi.ArgumentTypeError),
    "an operation on complex numbers": (
        lambda g: collectives.all_reduce(zeros(2, dtype="complex64"), op="max", group=g), gi.DTypeError,
    ),
    "a dtype that MPI lacks": (
        lambda g: collectives.all_reduce(zeros(2, dtype="float16"), group=g), gi.DTypeError,
    ),
    "two dtypes": (
        lambda g: collectives.all_gather(zeros(2), zeros(1, 2, dtype="float64"), group=g), gi.DTypeError,
    ),
    "shapes without the axis of ranks": (
        lambda g: collectives.all_gather(zeros(2), zeros(2), group=g), gi.ShapeError,
    ),
    "another shape to reduce into": (
        lambda g: collectives.all_reduce(zeros(2), zeros(3), group=g), gi.ShapeError,
    ),
    "a read-only destination": (lambda g: collectives.recv(frozen(2), 0, group=g), gi.ReadOnlyError),
    "a broadcast destination": (
        lambda g: collectives.recv(np.broadcast_to(np.zeros(1, "float32"), (3,)), 0, group=g), gi.ReadOnlyError,
    ),
    "a destination that overlaps itself": (
        lambda g: collectives.recv(OVERLAPPING, 0, group=g), gi.ContiguityError,
    ),
    "a list": (lambda g: collectives.recv([0.0], 0, group=g), gi.ConversionTypeError),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused(name, alone):
    call, error = REFUSED[name]
    with pytest.raises(error):
        call(alone)


def test_arrays_that_share_elements_are_refused(alone):
    x = zeros(1, 4)
    with pytest.raises(gi.ContiguityError, match="do not share memory"):
        collectives.all_to_all(x, x, group=alone)
    with pytest.raises(gi.ContiguityError, match="reduce in place"):
        collectives.all_reduce(x, x[:, ::-1], group=alone)
    whole = gi.arange(8, dtype="float32", device="cpu")
    collectives.all_gather(whole[::2], whole[1::2][None], group=alone)  # these only interleave
    assert whole.tolist() == [0, 0, 2, 2, 4, 4, 6, 6]


def test_mpi_copies_no_view_and_counts_what_it_packs(alone):
    x = gi.CudaNdarray(np.arange(12, dtype="float32").reshape(3, 4), device="cpu")
    out = zeros(1, 8, 6)
    with gi.no_copies():
        collectives.all_gather(x.T, out[:, ::2, ::2], group=alone)
    assert out[0, ::2, ::2].tolist() == x.T.tolist()
    gathered, back = zeros(1, 4, 3), zeros(3, 4)
    with gi.no_copies():  # the block that stays in the root is no packing
        collectives.gather(x.T, gathered[:, ::-1], group=alone)
        collectives.scatter(gathered[:, ::-1], back.T, group=alone)
    assert (gathered[0, ::-1].tolist(), back.tolist()) == (x.T.tolist(), x.tolist())
    for collective in (collectives.all_reduce, collectives.broadcast):
        with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
            collective(x.T, group=alone)
    with gi.count_copies() as counted:
        collectives.all_reduce(x.T, out[0, ::2, ::2], group=alone)
    assert (counted.count, counted.bytes) == (2, 96)
    with gi.count_copies() as counted:
        collectives.broadcast(x[:, ::-1], 0, group=alone)
    assert (counted.count, counted.bytes) == (1, 48)


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), ()])
def test_empty_and_0d_arrays(shape, alone):
    x, out = gi.full(shape, 3, device="cpu"), zeros(1, *shape)
    collectives.all_gather(x, out, group=alone)
    collectives.all_reduce(x, group=alone)
    collectives.broadcast(x, group=alone)
    assert out[0].tolist() == x.tolist()


@pytest.mark.parametrize("dtype", ["bool", "float16", "complex64", "bfloat16"])
def test_every_dtype_is_transferred(dtype, alone):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x = gi.ones((2, 3), dtype=dtype, device="cpu")
    out = zeros(1, 3, 2, dtype=dtype)
    collectives.gather(x.T, out, group=alone)
    assert out[0].tolist() == x.T.tolist()


# Blocks of half of what MPI counts, of which two processes have more, and of a quarter for a message to each other.
MANY = """
import sys
import numpy as np
from mpi4py import MPI
from gpuinterop import collectives
group, name, n = MPI.COMM_WORLD, sys.argv[1], (1 << 30) + 5
rank, size = group.rank, group.size

def made(*shape):
    return np.zeros(shape, "uint8")

def marks(x):
    return x[..., ::1000003], x[..., -1]

def fill(x, value):
    for part in marks(x):
        part[...] = value

def holds(x, value):
    return all((part == value).all() for part in marks(x))

if name in ("send", "broadcast"):
    x = made(2 * n)
    fill(x, 7 - 7 * rank)
    if name == "broadcast":
        collectives.broadcast(x, group=group)
    elif rank == 0:
        collectives.send(x, 1, group=group)
    else:
        collectives.recv(x, 0, group=group)
    same = holds(x, 7)
elif name == "scatter":
    x, out = made(size, n) if rank == 0 else None, made(n)
    for r in range(size if rank == 0 else 0):
        fill(x[r], r + 5)
    collectives.scatter(x, out, group=group)
    same = holds(out, rank + 5)
else:
    x, out = made(n), made(size, n) if rank == 0 or name == "all_gather" else None
    fill(x, rank + 5)
    getattr(collectives, name)(x, out, group=group)
    same = out is None or all(holds(out[r], r + 5) for r in range(size))
print("same" if same else "wrong", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["send", "broadcast", "gather", "scatter", "all_gather"])
def test_more_bytes_than_mpi_counts_between_processes(name):
    done = mpirun(2, "-c", MANY, name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["same"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_gather", "gather", "scatter"])
def test_more_bytes_than_mpi_counts(name, alone):
    count = (1 << 31) + 5
    x, out = np.zeros(count, np.uint8), np.zeros((1, count), np.uint8)
    if name == "scatter":
        x, out = x[None], out[0]
    x[..., ::1000003] = 7
    x[..., -1] = 9
    getattr(collectives, name)(x, out, group=alone)
    assert np.array_equal(out.reshape(-1), x.reshape(-1))


def mpi_engine():
    load_mpi()
    return pytest.importorskip("gpuinterop.collectives.mpi")


LONG = 1 << 31  # as many as MPI counts in 32 bits


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((3 * LONG + 5,), (1,)), ((5, LONG), (LONG, 1)), ((2, LONG // 2 + 1), (LONG, 1)), ((3, LONG - 1), (-LONG, 1)),
        ((3, LONG // 4, 2), (0, 8, 4)),
    ],
)  # fmt: skip
def test_datatypes_describe_more_bytes_than_mpi_counts(shape, strides):
    """Without the memory: MPI computes the size and the place of the elements from the datatype."""
    engine = mpi_engine()
    itemsize = 4 if strides[-1] == 4 else 1
    kind = engine._datatype([*zip(shape, strides, strict=True)], itemsize)
    kind.Commit()
    try:
        assert kind.Get_size() == np.prod(shape, dtype="int64") * itemsize
        ends = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
        first, end = sum(e for e in ends if e < 0), sum(e for e in ends if e > 0) + itemsize
        assert kind.Get_true_extent() == (first, end - first)
    finally:
        kind.Free()


def test_views_with_an_axis_longer_than_mpi_counts_are_packed():
    engine = mpi_engine()
    x = np.broadcast_to(np.uint8(3), (LONG,))
    assert not engine.takes("send", gi.from_any(x), False)
    assert engine.takes("send", gi.from_any(x[1:]), False)
