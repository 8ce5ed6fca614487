"""The logistic regression of data_parallel.py in a process group of torch, each process with every n-th example.

DEVICE is "cpu", with Gloo, or "cuda", with NCCL and one GPU a process. Needs PyTorch.

    torchrun --nproc-per-node 2 examples/data_parallel_torch.py [DEVICE]

One process alone: python examples/data_parallel_torch.py [DEVICE]
"""

from __future__ import annotations

import os
from typing import Any

import data_parallel

import gpuinterop as gi
from gpuinterop import collectives


def main(device: Any = "cpu") -> None:
    import torch
    import torch.distributed as dist

    place = gi.device(device or "cpu")
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if place.type == "cuda":
        place = gi.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}")
        torch.cuda.set_device(place.index)
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo", rank=rank, world_size=size)
    world = dist.group.WORLD
    x, y = (gi.asarray(a[rank::size], device=place) for a in data_parallel.examples())
    w, loss = data_parallel.train(x, y, lambda sums: collectives.all_reduce(sums, group=world))
    if rank == 0:
        data_parallel.report(w, loss, f"{size} processes of torch, {place}")
    dist.destroy_process_group()


if __name__ == "__main__":
    from command_line import device_asked_for

    main(device_asked_for(__doc__))
