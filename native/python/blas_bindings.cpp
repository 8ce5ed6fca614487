// Matrix products for Python, which has checked shapes, dtypes and devices.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "cuda/cuda.hpp"
#include "ops/cublas.hpp"
#include "ops/gemm.hpp"
#include "ops/graph.hpp"
#include "python/raise.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

void register_blas(nb::module_& m) {
  m.def("blas_open", &blas::open, nb::arg("cublas"), nb::arg("cublas_lt"), "Open cuBLAS; once.");
  m.def("blas_is_open", &blas::is_open);
  m.def(
      "blas_version",
      [](int device) {
        cuda::DeviceGuard guard(device);
        int version = 0;
        blas::check(
            blas::library().GetVersion(
                blas::handle(device, cuda::current_stream(device), "blas_version"), &version),
            "cublasGetVersion", "blas_version");
        return version;
      },
      nb::arg("device"));
  m.def(
      "gemm",
      [](nb::object out, nb::object a, nb::object b, nb::object c, nb::object bias, double alpha,
         double beta, bool tf32, const std::string& where) {
        for (const nb::object* o : {&out, &a, &b, &c, &bias}) {
          if (o->is_none()) continue;
          require_settled(o->ptr());
          ops::note_use(unwrap(o->ptr()));
        }
        ops::gemm(unwrap(out.ptr()), unwrap(a.ptr()), unwrap(b.ptr()),
                  c.is_none() ? nullptr : &unwrap(c.ptr()),
                  bias.is_none() ? nullptr : &unwrap(bias.ptr()), alpha, beta, tf32, where.c_str());
      },
      nb::arg("out"), nb::arg("a"), nb::arg("b"), nb::arg("c").none(), nb::arg("bias").none(),
      nb::arg("alpha"), nb::arg("beta"), nb::arg("tf32"), nb::arg("where"),
      "out = alpha * a @ b + beta * c, on CUDA.");
}

}  // namespace gpuinterop
