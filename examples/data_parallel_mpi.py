"""The logistic regression of data_parallel.py in the processes of MPI, each with every n-th example.

DEVICE is "cpu", or "cuda" for one GPU a process, which needs an MPI that was built for CUDA. Needs mpi4py.

    mpirun -n 2 python examples/data_parallel_mpi.py [DEVICE]

One process alone: python examples/data_parallel_mpi.py [DEVICE]
"""

from __future__ import annotations

from typing import Any

import data_parallel

import gpuinterop as gi
from gpuinterop import collectives


def main(device: Any = "cpu") -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    place = gi.device(device or "cpu")
    if place.type == "cuda":
        place = gi.device(f"cuda:{rank % (len(gi.devices()) - 1)}")
    x, y = (gi.asarray(a[rank::size], device=place) for a in data_parallel.examples())
    w, loss = data_parallel.train(x, y, lambda sums: collectives.all_reduce(sums, group=world))
    if rank == 0:
        data_parallel.report(w, loss, f"{size} processes of MPI, {place}")


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
