"""Runs reduction kernels on the CPU: g++ compiles their text, fibers play the threads of a block.

Barriers and shuffles work, because a thread that reaches one yields to the next thread until all
have arrived. Only what the reductions use is there.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from gpuinterop.jit import kernel_text

PREFIX = r"""
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>
#define __device__
#define __global__
#define __launch_bounds__(n)
#define __shared__ static
struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, gridDim, blockDim;
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
// What the GPU does in one instruction each; slow and plain.
static float half_to_float(unsigned short h) {
  const int e = h >> 10 & 31, m = h & 1023;
  const float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);
  return h & 0x8000 ? -v : v;
}
static unsigned short float_to_half(float f) {
  const unsigned short sign = __float_as_uint(f) >> 16 & 0x8000;
  const float v = fabsf(f);
  if (v != v) return sign | 0x7e00;
  if (v >= 65520.f) return sign | 0x7c00;
  if (v == 0) return sign;
  int e;
  frexpf(v, &e);
  if (e < -13) return sign | (unsigned short)nearbyintf(ldexpf(v, 24));
  return sign | (unsigned short)(((e + 13) << 10) + (int)nearbyintf(ldexpf(v, 11 - e)));
}
static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;
static std::vector<unsigned> lanes;
static unsigned current;
static void yield_thread() { swapcontext(&fibers[current], &scheduler); }
// Released between two rounds of the scheduler, so that the threads of a warp go on together.
static unsigned arrived, generation;
static void __syncthreads() {
  const unsigned mine = generation;
  for (++arrived; generation == mine;) yield_thread();
}
static void __threadfence() {}
static unsigned atomicInc(unsigned* at, unsigned most) {
  const unsigned old = *at;
  *at = old >= most ? 0 : old + 1;
  return old;
}
// Every thread of a warp publishes, all meet, everyone reads, all meet again.
static unsigned __shfl_down_sync(unsigned, unsigned v, int distance, int width) {
  unsigned me = threadIdx.x, lane = me % 32;
  lanes[me] = v;
  yield_thread();
  unsigned source = (lane % width) + distance < unsigned(width) ? me + distance : me;
  unsigned got = lanes[source];
  yield_thread();
  return got;
}
"""

ELEMENTWISE = r"""
using std::abs; using std::acosh; using std::asinh; using std::atan2; using std::atanh; using std::cbrt;
using std::ceil; using std::copysign; using std::cos; using std::cosh; using std::exp; using std::exp2;
using std::expm1; using std::fabs; using std::floor; using std::fmod; using std::hypot; using std::isfinite;
using std::isinf; using std::log; using std::log10; using std::log1p; using std::log2; using std::pow;
using std::rint; using std::signbit; using std::sin; using std::sinh; using std::sqrt; using std::tan;
using std::tanh; using std::trunc;
#define __forceinline__ inline
static inline long long __double_as_longlong(double x) { long long b; memcpy(&b, &x, 8); return b; }
static inline double __longlong_as_double(long long b) { double x; memcpy(&x, &b, 8); return x; }
static inline float __double2float_rz(double x) {
  float f = (float)x;
  if (fabs((double)f) > fabs(x)) f = __uint_as_float(__float_as_uint(f) - 1);
  return f;
}
static inline float gi_half_to_float(unsigned short h) { return half_to_float(h); }
static inline unsigned short gi_float_to_half(float f) { return float_to_half(f); }
// Rounded to odd on the way, so that the second rounding is the only one.
static inline unsigned short gi_double_to_half(double d) {
  const float cut = __double2float_rz(d);
  return float_to_half((double)cut == d || d != d ? cut : __uint_as_float(__float_as_uint(cut) | 1));
}
"""

RUNNER = r"""
static int backwards;  // blocks run one after the other: which of them is last is for the test to say
template <void (*KERNEL)(Params)>
struct Launch {
  static const Params* params;
  static std::vector<char> done;
  static void body() {
    KERNEL(*params);
    done[current] = 1;
    swapcontext(&fibers[current], &scheduler);
  }
  static void run(const Params& p, unsigned gx, unsigned gy, unsigned threads) {
    params = &p;
    gridDim = {gx, gy, 1};
    blockDim = {threads, 1, 1};
    const size_t stack = 64 * 1024;
    std::vector<char> stacks(stack * threads);
    lanes.assign(threads + 32, 0);
    for (unsigned y = 0; y < gy; ++y)
      for (unsigned x = 0; x < gx; ++x) {
        blockIdx = backwards ? Dim{gx - 1 - x, gy - 1 - y, 0} : Dim{x, y, 0};
        fibers.assign(threads, ucontext_t());
        done.assign(threads, 0);
        for (unsigned t = 0; t < threads; ++t) {
          getcontext(&fibers[t]);
          fibers[t].uc_stack.ss_sp = &stacks[stack * t];
          fibers[t].uc_stack.ss_size = stack;
          fibers[t].uc_link = nullptr;
          makecontext(&fibers[t], &body, 0);
        }
        for (unsigned left = threads; left;) {
          left = 0;
          for (unsigned t = 0; t < threads; ++t) {
            if (done[t]) continue;
            current = t;
            threadIdx = {t, 0, 0};
            swapcontext(&scheduler, &fibers[t]);
            left += !done[t];
          }
          if (arrived == threads) { arrived = 0; ++generation; }
        }
      }
  }
};
template <void (*K)(Params)> const Params* Launch<K>::params;
template <void (*K)(Params)> std::vector<char> Launch<K>::done;
"""


def compile_kernel(text: str, mode: str) -> ctypes.CDLL:
    """The kernels of `text` as host functions `first` and `second`."""
    return ctypes.CDLL(str(build(text, mode)))


def fake_image(text: str, arch: int, name: str = "", **_: object) -> bytes:
    """What stands for a cubin where tests/fakecuda stands for the driver."""
    mode = "rows" if "gi_reduce_rows" in text else "columns"
    return b"FAKECUDA:" + str(build(text, mode)).encode() + b"\0"


def build(text: str, mode: str) -> Path:
    # What only a GPU can run.
    text = text.replace(kernel_text("device.cuh"), ELEMENTWISE)
    source = (
        PREFIX
        + text.replace('extern "C" __global__', "static")
        .replace("gi_reduce_", "kernel_reduce_")
        .replace("gi_finish_", "kernel_finish_")
        + RUNNER
        + f"""
extern "C" void first(const char* bytes, unsigned gx, unsigned gy) {{
  Params p; memcpy(&p, bytes, sizeof p);
  Launch<kernel_reduce_{mode}>::run(p, gx, gy, GI_BLOCK);
}}
extern "C" void second(const char* bytes, unsigned gx) {{
  Params p; memcpy(&p, bytes, sizeof p);
  Launch<kernel_finish_{mode}>::run(p, gx, 1, GI_BLOCK);
}}
extern "C" void gi_reduce_{mode}(const unsigned* grid, const unsigned*, unsigned, void** args) {{
  first((const char*)args[0], grid[0], grid[1]);
}}
extern "C" void gi_finish_{mode}(const unsigned* grid, const unsigned*, unsigned, void** args) {{
  second((const char*)args[0], grid[0]);
}}
extern "C" const unsigned gi_reduce_{mode}_parameters[] = {{sizeof(Params), 0}};
extern "C" const unsigned gi_finish_{mode}_parameters[] = {{sizeof(Params), 0}};
extern "C" void order(int reversed) {{ backwards = reversed; }}
extern "C" long sizes(int which) {{ return which ? sizeof(Params) : sizeof(Acc); }}
"""
    )
    return shared_object(source)


def built(text: str) -> ctypes.CDLL:
    """Host functions made of plain kernel text."""
    source = PREFIX + text.replace(kernel_text("device.cuh"), ELEMENTWISE)
    return ctypes.CDLL(str(shared_object(source)))


def shared_object(source: str) -> Path:
    """The library of a program, kept for as long as that stays the same."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = (
        Path(tempfile.gettempdir())
        / f"gpuinterop-shim-{hashlib.sha256(source.encode()).hexdigest()[:24]}"
    )
    library = folder / "kernel.so"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        # Names of its own: another process may build the same at this moment.
        text, built = folder / f"{os.getpid()}.cpp", folder / f"{os.getpid()}.so"
        text.write_text(source)
        # Every library has shared memory of its own, though all give it the same name.
        command = [compiler, "-std=c++17", "-O1", "-fno-gnu-unique", "-ffp-contract=off", "-w"]
        command += ["-shared", "-fPIC"]
        done = subprocess.run(
            [*command, "-o", str(built), str(text)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[:4000]
        built.replace(library)
    return library
