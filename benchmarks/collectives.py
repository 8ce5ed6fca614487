"""How fast are collectives of views between two GPUs, beside the same call of torch on a contiguous tensor?

GB/s of a process's array, by collective and layout. Start one process for each GPU, with the same FILE:

    python benchmarks/collectives.py nccl RANK SIZE FILE
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import gpuinterop as gi
from gpuinterop import collectives

SIZES = {"64 MiB": 4096, "256 MiB": 16384}  # rows of 4096 float32
COLUMNS, REPEATS = 4096, 20
LAYOUTS: dict[str, Callable[[int, str], Any]] = {
    "contiguous": lambda rows, device: gi.zeros((rows, COLUMNS), device=device),
    "every other column": lambda rows, device: gi.zeros((rows, 2 * COLUMNS), device=device)[:, ::2],
    "transposed": lambda rows, device: gi.zeros((COLUMNS, rows), device=device).T,
    "mirrored": lambda rows, device: gi.zeros((rows, COLUMNS), device=device)[::-1, ::-1],
}


def seconds(step: Callable[[], Any]) -> float:
    """Return the shortest of three means."""
    best = 1e9
    for _ in range(3):
        step()
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(REPEATS):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / REPEATS)
    return best


def calls(layout: str, rows: int, rank: int, size: int) -> dict[str, tuple[Any, Any]]:
    """Return the calls of gpuinterop and of torch, by collective."""
    group, device = dist.group.WORLD, f"cuda:{rank}"
    x, y = (LAYOUTS[layout](rows, device) for _ in range(2))
    part = LAYOUTS[layout](rows // size, device)
    blocks = gi.zeros((size, rows // size, COLUMNS), device=device)
    a, b = (torch.zeros(rows, COLUMNS, device=device) for _ in range(2))
    half = torch.zeros(rows // size, COLUMNS, device=device)
    own_send = (collectives.send, x, 1) if rank == 0 else (collectives.recv, y, 0)
    torch_send = (dist.send, a, 1) if rank == 0 else (dist.recv, b, 0)
    return {
        "send": (lambda: own_send[0](*own_send[1:], group=group), lambda: torch_send[0](*torch_send[1:])),
        "broadcast": (lambda: collectives.broadcast(x, group=group), lambda: dist.broadcast(a, 0)),
        "all_reduce": (lambda: collectives.all_reduce(x, group=group), lambda: dist.all_reduce(a)),
        "reduce_scatter": (
            lambda: collectives.reduce_scatter(blocks, part, group=group),
            lambda: dist.reduce_scatter_tensor(half, a),
        ),
        "all_gather": (
            lambda: collectives.all_gather(part, blocks, group=group),
            lambda: dist.all_gather_into_tensor(a, half),
        ),
    }  # fmt: skip


def main(rank: int, size: int) -> None:
    """Print the table on rank 0."""
    for name, rows in SIZES.items():
        for layout in LAYOUTS:
            for collective, (own, other) in calls(layout, rows, rank, size).items():
                times = seconds(own), seconds(other)
                rates = [rows * COLUMNS * 4e-9 / t for t in times]
                if rank == 0:
                    print(
                        f"{name:8}{layout:20}{collective:15}{rates[0]:8.1f} GB/s, torch {rates[1]:8.1f}, "
                        f"ratio {rates[0] / rates[1]:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    own_rank, count = int(sys.argv[2]), int(sys.argv[3])
    torch.cuda.set_device(own_rank)
    dist.init_process_group(
        sys.argv[1], init_method=f"file://{sys.argv[4]}", rank=own_rank, world_size=count
    )
    main(own_rank, count)
    dist.barrier()
    dist.destroy_process_group()
