"""Run each collective with each layout in one process of a group, and compare with NumPy; a test starts the others.

mpirun -n 2 python every_layout.py mpi
mpirun -n 2 python every_layout.py mpi long
python every_layout.py gloo RANK SIZE FILE
python every_layout.py nccl|nccl4py RANK SIZE FILE
"""

import sys
import time
from pathlib import Path

import numpy as np

import gpuinterop as gi
from gpuinterop import collectives

# Long messages, of a MiB and more, are cut into pieces, and sent when both sides are ready.
LONG = sys.argv[-1] == "long"
SHAPE = (519, 513) if LONG else (6, 5)


def _sliced(*slices):
    """Make a view of `shape` by slices of a larger array, for the first and the last axis."""

    def make(new, shape):
        steps = [abs(s.step or 1) for s in slices]
        starts = [0 if (s.step or 1) < 0 else s.start or 0 for s in slices]
        lengths = list(shape)
        lengths[0] = starts[0] + steps[0] * lengths[0]
        lengths[-1] = starts[1] + steps[1] * lengths[-1]
        whole = new(tuple(lengths))
        view = whole[(slices[0], ..., slices[1])]
        return whole, view[(slice(shape[0]), ..., slice(shape[-1]))]

    return make


def _ordered(axes_of):
    def make(new, shape):
        axes = axes_of(len(shape))
        whole = new(tuple(shape[axis] for axis in axes))
        return whole, whole.transpose(*np.argsort(axes).tolist())

    return make


def _planes(new, shape):
    whole = new((*shape, 2))
    return whole, whole[..., 1]


def _broadcast(new, shape):
    whole = new((1, *shape[1:]))
    return whole, (gi if isinstance(whole, gi.GpuArray) else np).broadcast_to(whole, shape)


S = slice
LAYOUTS = {
    "C": _sliced(S(None), S(None)),
    "F": _ordered(lambda n: [*range(n)][::-1]),
    "permuted": _ordered(lambda n: [*range(1, n), 0]),
    "rows": _sliced(S(None, None, 2), S(None)),
    "columns": _sliced(S(None), S(None, None, 3)),
    "rows and columns": _sliced(S(None, None, 3), S(None, None, 2)),
    "mirrored rows": _sliced(S(None, None, -1), S(None)),
    "mirrored columns": _sliced(S(None), S(None, None, -1)),
    "mirrored": _sliced(S(None, None, -1), S(None, None, -1)),
    "mirrored steps": _sliced(S(None, None, -2), S(None, None, -3)),
    "block": _sliced(S(1, None), S(2, None)),
    "planes": _planes,
    "broadcast": _broadcast,  # a destination cannot be one
}


class Side:
    """Arrays of this process: in the memory of NumPy or of gpuinterop."""

    def __init__(self, device, dtype):
        self.device, self.dtype = device, dtype

    def new(self, library):
        def make(shape):
            values = np.full(shape, 77).astype(self.dtype)
            return values if library == "numpy" else gi.GpuArray(values, device=self.device)

        return make

    def source(self, layout, values, library):
        """A view with this layout and these values; those of a broadcast array are its first ones."""
        whole, view = LAYOUTS[layout](self.new(library), values.shape)
        if layout == "broadcast":
            whole[...] = values[:1]
        else:
            view[...] = values
        return view

    def target(self, layout, shape, library):
        return LAYOUTS[layout](self.new(library), shape)


def host(x):
    return np.array(x if isinstance(x, np.ndarray) else x.get())


def written(layout, shape, dtype, values):
    """The whole array of a destination after the view has been written, computed by NumPy."""
    whole, view = LAYOUTS[layout](lambda s: np.full(s, 77).astype(dtype), shape)
    view[...] = values
    return whole


def values_of(rank, shape, layout, dtype):
    flat = np.arange(np.prod(shape)).reshape(shape) % 23 + 1 + rank
    return (np.broadcast_to(flat[:1], shape) if layout == "broadcast" else flat).astype(dtype)


def check(collective, group, rank, size, side, source, target, library):
    """Run one collective from a layout into a layout. Returns whether the destination holds what NumPy says."""
    dtype = side.dtype
    stacked = (size, *SHAPE)
    takes = {"reduce_scatter": stacked, "scatter": stacked, "all_to_all": stacked}
    gives = {"all_gather": stacked, "gather": stacked, "all_to_all": stacked}
    shape_in, shape_out = takes.get(collective, SHAPE), gives.get(collective, SHAPE)
    data = [values_of(r, shape_in, source, dtype) for r in range(size)]
    root = size - 1
    expected = {
        "send": lambda: data[0], "recv": lambda: data[0], "broadcast": lambda: data[root],
        "all_reduce": lambda: sum(data), "reduce_scatter": lambda: sum(data)[rank],
        "all_gather": lambda: np.stack(data), "gather": lambda: np.stack(data),
        "scatter": lambda: data[root][rank], "all_to_all": lambda: np.stack([d[rank] for d in data]),
    }[collective]()  # fmt: skip
    x = side.source(source, data[rank], library)
    whole, out = side.target(target, shape_out, library)
    name = {"send": "send", "recv": "send"}.get(collective, collective)
    options = {"group": group}
    if name == "send":
        if rank == 0:
            collectives.send(x, 1, **options)
        if rank == 1:
            collectives.recv(out, 0, **options)
        if rank != 1:
            return True
    elif name == "broadcast":
        if rank == root:
            collectives.broadcast(x, root, **options)
            return np.array_equal(host(x), data[rank])
        collectives.broadcast(out, root, **options)
    elif name == "gather":
        collectives.gather(x, out if rank == root else None, root, **options)
        if rank != root:
            return True
    elif name == "scatter":
        collectives.scatter(x if rank == root else None, out, root, **options)
    else:
        getattr(collectives, name)(x, out, **options)
    same = np.array_equal(host(whole), written(target, shape_out, dtype, expected))
    return same and np.array_equal(host(x), data[rank])


COLLECTIVES = (
    "send", "broadcast", "all_reduce", "reduce_scatter", "all_gather", "gather", "scatter", "all_to_all",
)  # fmt: skip


def main(group, rank, size, device, dtypes):
    """Return the cases that are wrong in this process, and the number of cases."""
    targets = [name for name in LAYOUTS if name != "broadcast"]
    wrong, count = [], 0
    for dtype in dtypes:
        side = Side(device, dtype)
        for i, source in enumerate(LAYOUTS):
            chosen = [targets[i % len(targets)], targets[(5 * i + 1) % len(targets)]][LONG:]
            for j, target in enumerate(chosen):
                library = "numpy" if device == "cpu" and (i + j) % 2 else "gpuinterop"
                for collective in COLLECTIVES:
                    count += 1
                    if not check(collective, group, rank, size, side, source, target, library):
                        wrong.append((collective, source, target, dtype, library))
    return wrong, count


def in_place(group, size, device):
    """Reduce views in place: what lies between their elements stays."""
    wrong = []
    for layout in LAYOUTS:
        if layout != "broadcast":
            whole, view = Side(device, "float32").target(layout, SHAPE, "gpuinterop")
            view[...] = values_of(0, SHAPE, layout, "float32")
            for op, result in (("sum", size), ("max", 1)):
                expected = host(view) * result
                collectives.all_reduce(view, op=op, group=group)
                if not np.array_equal(host(whole), written(layout, SHAPE, "float32", expected)):
                    wrong.append(("in place", layout, op))
    return wrong


def enter(words):
    """Return the group, the rank and the size that the command line describes, and the device."""
    if words[0].startswith("mpi"):
        from mpi4py import MPI

        rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
        return MPI.COMM_WORLD, rank, size, "cpu" if words[0] == "mpi" else f"cuda:{rank}"
    backend, rank, size, file = words[0], int(words[1]), int(words[2]), words[3]
    device = "cpu" if backend == "gloo" else f"cuda:{rank}"
    if backend == "nccl4py":
        return nccl_communicator(rank, size, Path(file)), rank, size, device
    import torch
    import torch.distributed as dist

    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=size)
    return dist.group.WORLD, rank, size, device


def nccl_communicator(rank, size, file):
    """Make a communicator of nccl4py, whose identity rank 0 writes to the file."""
    import nccl.core
    from cuda.core import Device

    Device(rank).set_current()
    if rank == 0:
        file.with_suffix(".new").write_bytes(bytes(nccl.core.get_unique_id()))
        file.with_suffix(".new").rename(file)
    while not file.exists():
        time.sleep(0.01)
    identity = nccl.core.UniqueId.from_bytes(file.read_bytes())
    return nccl.core.Communicator.init(size, rank, identity)


def leave(group, backend):
    """End the group, once every process has arrived here."""
    if backend == "nccl4py":
        group.destroy()
    elif not backend.startswith("mpi"):
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    group, rank, size, device = enter(sys.argv[1:])
    dtypes = ("float32", "int64") if device != "cpu" else ("float32", "int64", "uint8")
    if LONG:
        dtypes = ("float32",)
    wrong, count = main(group, rank, size, device, dtypes)
    wrong += in_place(group, size, device)
    print(f"rank {rank} of {size}: {count} cases, {len(wrong)} wrong", *wrong, sep="\n", flush=True)
    leave(group, sys.argv[1])
    sys.exit(bool(wrong))
