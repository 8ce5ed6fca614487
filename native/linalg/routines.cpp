// The routines of cuSOLVER on stacks of matrices, for gpuinterop/linalg. Python prepares the arrays: without gaps, on
// one device, writable, not empty. The last axis of a stack runs along the columns of its matrices, the last but one
// from column to column: cuSOLVER's order. The routines overwrite their operands.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "devices/cuda.hpp"
#include "interpreter/error.hpp"
#include "interpreter/register.hpp"
#include "linalg/cusolver.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop::solver {

namespace {

// A stack of matrices in cuSOLVER's terms. A vector for each matrix has one row: its length is `columns`.
struct Stack {
  char* data;
  int64_t rows, columns, count, bytes;  // bytes: of one matrix
  DataType type;
  DTypeId dtype;

  explicit Stack(const Array& a) {
    const Layout& l = a.layout;
    const int n = l.ndim();
    if (n < 2 || !l.is_c_contiguous() || l.size() == 0)
      fail(Kind::Contiguity, "linalg", "matrices without gaps", layout_text(l), "copy them");
    data = a.data;
    rows = l.shape()[n - 1];
    columns = l.shape()[n - 2];
    count = l.size() / (rows * columns);
    bytes = rows * columns * a.itemsize();
    dtype = a.dtype;
    type = data_type(dtype);
  }
  void* at(int64_t i) const { return data + i * bytes; }
};

// A vector of `length` elements for each matrix.
struct VectorStack {
  char* data;
  int64_t bytes;
  VectorStack(const Array& a, int64_t length) : data(a.data), bytes(length * a.itemsize()) {}
  void* at(int64_t i) const { return data + i * bytes; }
};

struct WorkArea {
  void* device;
  size_t device_bytes;
  void* host;
  size_t host_bytes;
  int* status;  // for routines whose status says nothing about the matrix
};

// cuSOLVER allocates and synchronises as it likes.
void require_no_capture(CUstream stream) {
  if (ops::recorder || cuda::is_capturing(stream))
    fail(Kind::Capture, kWhere, "a call outside a capture", "a stream that is being captured",
         "call it before the capture");
}

struct Routine {
  const char* name;
  std::vector<const Array*> arrays;
  int64_t times;  // how often it runs: for a batched routine once
  std::string key;

  Routine(const char* routine, std::initializer_list<const Array*> used, int64_t runs,
          std::initializer_list<int64_t> sizes)
      : name(routine), arrays(used), times(runs), key(routine) {
    for (int64_t n : sizes) key.append(reinterpret_cast<const char*>(&n), sizeof n);
  }

  // query(use, size) and run(use, i, work) return the status of the query of the work area, and of the ith run.
  template <class Query, class Run>
  void call(Query&& query, Run&& run) const {
    const Device device = arrays[0]->device;
    cuda::DeviceGuard guard(device.id);
    const CUstream stream = cuda::current_stream(device.id);
    require_no_capture(stream);
    WorkSize size;
    {
      Use use(device.id, stream);
      size = use.work_size(key, [&] {
        WorkSize made;
        check(query(use, made), (std::string(name) + "_bufferSize").c_str());
        made.device += static_cast<size_t>(made.elements * arrays[0]->itemsize());
        return made;
      });
    }
    const auto bytes = static_cast<int64_t>((size.device + 255) / 256 * 256);
    BufferRef work = allocate(device, bytes + 256, kWhere);
    std::vector<Buffer*> buffers = {work.get()};
    for (const Array* a : arrays) buffers.push_back(a->buffer.get());
    cuda::queue(buffers.data(), static_cast<int>(buffers.size()), stream, kWhere, [&] {
      Use use(device.id, stream);
      const WorkArea area = {work->ptr, size.device, use.host(size.host), size.host,
                             reinterpret_cast<int*>(work->ptr + bytes)};
      for (int64_t i = 0; i < times; ++i) check(run(use, i, area), name);
    });
  }
};

int nothing(Use&, WorkSize&) { return 0; }
int as_int(int64_t n) { return static_cast<int>(n); }

// Addresses of the matrices, in device memory, for the batched routines.
void* const* addresses(const Array& pointers) {
  return reinterpret_cast<void* const*>(pointers.data);
}

std::optional<Array> array_or_none(nb::handle o) {
  return o.is_none() ? std::optional<Array>() : read_array(o, kWhere);
}

// ---- LU -----------------------------------------------------------------------------------------

// Calls cuBLAS once for a stack of small matrices. `pivots` are int32.
template <class Run>
void call_cublas(const char* name, std::initializer_list<const Array*> arrays, Run&& run) {
  const int device = (*arrays.begin())->device.id;
  cuda::DeviceGuard guard(device);
  const CUstream stream = cuda::current_stream(device);
  require_no_capture(stream);
  std::vector<Buffer*> buffers;
  for (const Array* x : arrays) buffers.push_back(x->buffer.get());
  cuda::queue(buffers.data(), as_int(int64_t(buffers.size())), stream, kWhere, [&] {
    const blas::HandleLock lock(device);
    blas::check(run(blas::handle(device, stream, kWhere)), name, kWhere);
  });
}

void batched_lu(const Array& a, const Array& a_at, const Array& pivots, const Array& info) {
  const Stack m(a);
  const int n = as_int(m.rows);
  call_cublas("cublasgetrfBatched", {&a, &a_at, &pivots, &info}, [&](blas::Handle handle) {
    return library().BatchedLu[type_index(a.dtype)](
        handle, n, addresses(a_at), n, reinterpret_cast<int*>(pivots.data),
        reinterpret_cast<int*>(info.data), as_int(m.count));
  });
}

void batched_lu_solve(const Array& a, const Array& a_at, const Array& pivots, const Array& b,
                      const Array& b_at) {
  const Stack m(a), right(b);
  const int n = as_int(m.rows);
  call_cublas("cublasgetrsBatched", {&a, &a_at, &pivots, &b, &b_at}, [&](blas::Handle handle) {
    int refused = 0;
    return library().BatchedLuSolve[type_index(a.dtype)](
        handle, blas::kNone, n, as_int(right.columns), addresses(a_at), n,
        reinterpret_cast<const int*>(pivots.data), addresses(b_at), n, &refused, as_int(m.count));
  });
}

// Replaces a by its factors. `pivots` are int64.
void lu(const Array& a, const Array& pivots, const Array& info) {
  const Stack m(a);
  const VectorStack piv(pivots, m.rows), status(info, 1);
  const int64_t n = m.rows;
  Routine("cusolverDnXgetrf", {&a, &pivots, &info}, m.count, {m.type, n})
      .call(
          [&](Use& s, WorkSize& size) {
            return library().LuSize(s.handle, s.parameters, n, n, m.type, m.data, n, m.type,
                                    &size.device, &size.host);
          },
          [&](Use& s, int64_t i, const WorkArea& w) {
            return library().Lu(s.handle, s.parameters, n, n, m.type, m.at(i), n,
                                static_cast<int64_t*>(piv.at(i)), m.type, w.device, w.device_bytes,
                                w.host, w.host_bytes, static_cast<int*>(status.at(i)));
          });
}

// Replaces b by the solution.
void lu_solve(const Array& a, const Array& pivots, const Array& b) {
  const Stack m(a), right(b);
  const VectorStack piv(pivots, m.rows);
  const int64_t n = m.rows;
  Routine("cusolverDnXgetrs", {&a, &pivots, &b}, m.count, {})
      .call(nothing, [&](Use& s, int64_t i, const WorkArea& w) {
        return library().LuSolve(s.handle, s.parameters, blas::kNone, n, right.columns, m.type,
                                 m.at(i), n, static_cast<const int64_t*>(piv.at(i)), right.type,
                                 right.at(i), n, w.status);
      });
}

// ---- Cholesky, QR -------------------------------------------------------------------------------

// The lower triangle of a; the other one is not touched.
void cholesky(const Array& a, const Array& info, nb::handle addresses_of_a) {
  const Stack m(a);
  const auto a_at = array_or_none(addresses_of_a);
  const VectorStack status(info, 1);
  const int64_t n = m.rows;
  if (a_at)
    return Routine("cusolverDnpotrfBatched", {&a, &info, &*a_at}, 1, {})
        .call(nothing, [&](Use& s, int64_t, const WorkArea&) {
          return library().BatchedCholesky[type_index(a.dtype)](
              s.handle, kLower, as_int(n), addresses(*a_at), as_int(n),
              reinterpret_cast<int*>(info.data), as_int(m.count));
        });
  Routine("cusolverDnXpotrf", {&a, &info}, m.count, {m.type, n})
      .call(
          [&](Use& s, WorkSize& size) {
            return library().CholeskySize(s.handle, s.parameters, kLower, n, m.type, m.data, n,
                                          m.type, &size.device, &size.host);
          },
          [&](Use& s, int64_t i, const WorkArea& w) {
            return library().Cholesky(s.handle, s.parameters, kLower, n, m.type, m.at(i), n, m.type,
                                      w.device, w.device_bytes, w.host, w.host_bytes,
                                      static_cast<int*>(status.at(i)));
          });
}

// Of the first `columns` columns of a: R above the diagonal, and below what make_q() reads.
void qr(const Array& a, int64_t columns, const Array& tau) {
  const Stack m(a);
  const VectorStack scales(tau, std::min(m.rows, columns));
  Routine("cusolverDnXgeqrf", {&a, &tau}, m.count, {m.type, m.rows, columns})
      .call(
          [&](Use& s, WorkSize& size) {
            return library().QrSize(s.handle, s.parameters, m.rows, columns, m.type, m.data, m.rows,
                                    m.type, tau.data, m.type, &size.device, &size.host);
          },
          [&](Use& s, int64_t i, const WorkArea& w) {
            return library().Qr(s.handle, s.parameters, m.rows, columns, m.type, m.at(i), m.rows,
                                m.type, scales.at(i), m.type, w.device, w.device_bytes, w.host,
                                w.host_bytes, w.status);
          });
}

void batched_qr(const Array& a, const Array& a_at, const Array& tau, const Array& tau_at) {
  const Stack m(a);
  call_cublas("cublasgeqrfBatched", {&a, &a_at, &tau, &tau_at}, [&](blas::Handle handle) {
    int refused = 0;
    return library().BatchedQr[type_index(a.dtype)](handle, as_int(m.rows), as_int(m.columns),
                                                    addresses(a_at), as_int(m.rows),
                                                    addresses(tau_at), &refused, as_int(m.count));
  });
}

// Replaces the reflectors that qr() left in a by the first columns of Q, as many as a has.
void make_q(const Array& a, int64_t reflectors, const Array& tau) {
  const Stack m(a);
  const VectorStack scales(tau, reflectors);
  const int rows = as_int(m.rows), columns = as_int(m.columns), k = as_int(reflectors);
  const int which = type_index(a.dtype);
  Routine("cusolverDnorgqr", {&a, &tau}, m.count, {m.type, rows, columns, k})
      .call(
          [&](Use& s, WorkSize& size) {
            return library().MakeQSize[which](s.handle, rows, columns, k, m.data, rows, tau.data,
                                              &size.elements);
          },
          [&](Use& s, int64_t i, const WorkArea& w) {
            return library().MakeQ[which](s.handle, rows, columns, k, m.at(i), rows, scales.at(i),
                                          w.device, as_int(int64_t(w.device_bytes) / a.itemsize()),
                                          w.status);
          });
}

// ---- eigenvalues --------------------------------------------------------------------------------

// Of Hermitian matrices, from one triangle; with vectors they replace a.
void eigh(const Array& a, const Array& values, const Array& info, bool vectors, bool lower,
          bool batched) {
  const Stack m(a);
  const int64_t n = m.rows;
  const VectorStack w(values, n), status(info, 1);
  const DataType real = data_type(values.dtype);
  const Vectors job = vectors ? kVectors : kNoVectors;
  const Triangle triangle = lower ? kLower : kUpper;
  const Library& f = library();
  batched = batched && f.BatchedEigh;
  const char* name = batched ? "cusolverDnXsyevBatched" : "cusolverDnXsyevd";
  Routine(name, {&a, &values, &info}, batched ? 1 : m.count,
          {m.type, n, job, triangle, batched ? m.count : 1})
      .call(
          [&](Use& s, WorkSize& size) {
            return batched ? f.BatchedEighSize(s.handle, s.parameters, job, triangle, n, m.type,
                                               m.data, n, real, values.data, m.type, &size.device,
                                               &size.host, m.count)
                           : f.EighSize(s.handle, s.parameters, job, triangle, n, m.type, m.data, n,
                                        real, values.data, m.type, &size.device, &size.host);
          },
          [&](Use& s, int64_t i, const WorkArea& k) {
            if (batched)
              return f.BatchedEigh(s.handle, s.parameters, job, triangle, n, m.type, m.data, n,
                                   real, values.data, m.type, k.device, k.device_bytes, k.host,
                                   k.host_bytes, reinterpret_cast<int*>(info.data), m.count);
            return f.Eigh(s.handle, s.parameters, job, triangle, n, m.type, m.at(i), n, real,
                          w.at(i), m.type, k.device, k.device_bytes, k.host, k.host_bytes,
                          static_cast<int*>(status.at(i)));
          });
}

// Of general matrices. `values` are complex; of real matrices, two columns of `vectors` are the parts of a pair.
void eig(const Array& a, const Array& values, nb::handle right_vectors, const Array& info) {
  if (!library().Eig)
    fail(Kind::Library, kWhere, "cuSOLVER of CUDA 12.8 or later, which has cusolverDnXgeev",
         "an older cuSOLVER",
         "install a newer one, or compute on the host: numpy.linalg.eig(x.get())");
  const Stack m(a);
  const auto vectors = array_or_none(right_vectors);
  const int64_t n = m.rows;
  const VectorStack w(values, n), status(info, 1);
  const Array& v = vectors ? *vectors : a;  // not written without vectors
  const Stack right(v);
  const Vectors job = vectors ? kVectors : kNoVectors;
  const DataType complex = data_type(values.dtype);
  const Library& f = library();
  Routine("cusolverDnXgeev", {&a, &values, &v, &info}, m.count, {m.type, n, job})
      .call(
          [&](Use& s, WorkSize& size) {
            return f.EigSize(s.handle, s.parameters, kNoVectors, job, n, m.type, m.data, n, complex,
                             values.data, m.type, v.data, n, m.type, v.data, n, m.type,
                             &size.device, &size.host);
          },
          [&](Use& s, int64_t i, const WorkArea& k) {
            return f.Eig(s.handle, s.parameters, kNoVectors, job, n, m.type, m.at(i), n, complex,
                         w.at(i), m.type, right.at(i), n, m.type, right.at(i), n, m.type, k.device,
                         k.device_bytes, k.host, k.host_bytes, static_cast<int*>(status.at(i)));
          });
}

// ---- singular values ----------------------------------------------------------------------------

// The arrays of a decomposition of matrices with at least as many rows as columns. Without vectors u and v are
// not written.
struct Decomposition {
  const Array &a, &values, &u, &v, &info;
  bool vectors, full;
};

// Jacobi rotations: the fastest for small matrices. v holds V.
void jacobi_svd(const Decomposition& d) {
  const Stack m(d.a), u(d.u), v(d.v);
  const VectorStack s(d.values, m.columns), status(d.info, 1);
  const int rows = as_int(m.rows), columns = as_int(m.columns), which = type_index(d.a.dtype);
  const Vectors job = d.vectors ? kVectors : kNoVectors;
  const int economical = d.full ? 0 : 1;
  Routine("cusolverDngesvdj", {&d.a, &d.values, &d.u, &d.v, &d.info}, m.count,
          {m.type, rows, columns, job, economical})
      .call(
          [&](Use& x, WorkSize& size) {
            return library().JacobiSvdSize[which](x.handle, job, economical, rows, columns, m.data,
                                                  rows, d.values.data, u.data, rows, v.data,
                                                  columns, &size.elements, x.jacobi(d.a.dtype));
          },
          [&](Use& x, int64_t i, const WorkArea& w) {
            return library().JacobiSvd[which](
                x.handle, job, economical, rows, columns, m.at(i), rows, s.at(i), u.at(i), rows,
                v.at(i), columns, w.device, as_int(int64_t(w.device_bytes) / d.a.itemsize()),
                static_cast<int*>(status.at(i)), x.jacobi(d.a.dtype));
          });
}

// A polar decomposition and eigenvalues: the fastest for large matrices of full rank. v holds V. Returns by how much
// it has shifted singular values, because some were near zero.
double polar_svd(const Decomposition& d) {
  const Stack m(d.a), u(d.u), v(d.v);
  const VectorStack s(d.values, m.columns), status(d.info, 1);
  const DataType real = data_type(d.values.dtype);
  const Vectors job = d.vectors ? kVectors : kNoVectors;
  const int economical = d.full ? 0 : 1;
  double shift = 0, largest_shift = 0;
  Routine("cusolverDnXgesvdp", {&d.a, &d.values, &d.u, &d.v, &d.info}, m.count,
          {m.type, m.rows, m.columns, job, economical})
      .call(
          [&](Use& x, WorkSize& size) {
            return library().PolarSvdSize(x.handle, x.parameters, job, economical, m.rows,
                                          m.columns, m.type, m.data, m.rows, real, d.values.data,
                                          m.type, u.data, m.rows, m.type, v.data, m.columns, m.type,
                                          &size.device, &size.host);
          },
          [&](Use& x, int64_t i, const WorkArea& w) {
            const int code =
                library().PolarSvd(x.handle, x.parameters, job, economical, m.rows, m.columns,
                                   m.type, m.at(i), m.rows, real, s.at(i), m.type, u.at(i), m.rows,
                                   m.type, v.at(i), m.columns, m.type, w.device, w.device_bytes,
                                   w.host, w.host_bytes, static_cast<int*>(status.at(i)), &shift);
            largest_shift = std::max(largest_shift, shift);
            return code;
          });
  return largest_shift;
}

// QR steps: for every matrix, and slow. v holds the adjoint of V.
void qr_svd(const Decomposition& d) {
  const Stack m(d.a), u(d.u), v(d.v);
  const VectorStack s(d.values, m.columns), status(d.info, 1);
  const DataType real = data_type(d.values.dtype);
  const auto job = static_cast<signed char>(!d.vectors ? 'N' : d.full ? 'A' : 'S');
  Routine("cusolverDnXgesvd", {&d.a, &d.values, &d.u, &d.v, &d.info}, m.count,
          {m.type, m.rows, m.columns, job})
      .call(
          [&](Use& x, WorkSize& size) {
            return library().SvdSize(x.handle, x.parameters, job, job, m.rows, m.columns, m.type,
                                     m.data, m.rows, real, d.values.data, m.type, u.data, m.rows,
                                     m.type, v.data, m.columns, m.type, &size.device, &size.host);
          },
          [&](Use& x, int64_t i, const WorkArea& w) {
            return library().Svd(x.handle, x.parameters, job, job, m.rows, m.columns, m.type,
                                 m.at(i), m.rows, real, s.at(i), m.type, u.at(i), m.rows, m.type,
                                 v.at(i), m.columns, m.type, w.device, w.device_bytes, w.host,
                                 w.host_bytes, static_cast<int*>(status.at(i)));
          });
}

// The real or the imaginary parts of an array of complex numbers, on its memory.
nb::object complex_part(nb::handle x, bool imaginary) {
  const Array& whole = read_array(x, "linalg");
  Array part = view_of(x.ptr());
  part.layout = whole.layout;
  part.dtype = real_part(whole.dtype);
  part.data = whole.data + (imaginary && whole.data ? part.itemsize() : 0);
  for (int d = 0; d < part.layout.ndim(); ++d) part.layout.strides()[d] *= 2;
  part.layout.finish("linalg");
  return nb::steal(wrap(reinterpret_cast<PyTypeObject*>(gpuarray_class().ptr()), std::move(part)));
}

double svd(const std::string& method, const Array& a, const Array& values, const Array& u,
           const Array& v, const Array& info, bool vectors, bool full) {
  const Decomposition d = {a, values, u, v, info, vectors, full};
  if (method == "polar") return polar_svd(d);
  method == "jacobi" ? jacobi_svd(d) : qr_svd(d);
  return 0;
}

}  // namespace

}  // namespace gpuinterop::solver

namespace gpuinterop {

void register_linalg(nb::module_& m) {
  namespace s = solver;
  m.def("_linalg_open", &s::open, "cusolver"_a, "cublas"_a, "Open cuSOLVER, once in a process.");
  m.def("_complex_part", &s::complex_part, "x"_a, "imaginary"_a,
        "Return the real or the imaginary parts, on the same memory.");
  m.def("_linalg_lu", &s::lu, "a"_a, "pivots"_a, "info"_a, "Replace a by its factors.");
  m.def("_linalg_lu_solve", &s::lu_solve, "a"_a, "pivots"_a, "b"_a,
        "Replace b by the solution, from factors.");
  m.def("_linalg_batched_lu", &s::batched_lu, "a"_a, "a_at"_a, "pivots"_a, "info"_a,
        "The same for many small matrices, at these addresses.");
  m.def("_linalg_batched_lu_solve", &s::batched_lu_solve, "a"_a, "a_at"_a, "pivots"_a, "b"_a,
        "b_at"_a, "The same for many small matrices, at these addresses.");
  m.def("_linalg_batched_qr", &s::batched_qr, "a"_a, "a_at"_a, "tau"_a, "tau_at"_a,
        "Factor many small matrices, at these addresses, into R and reflectors.");
  m.def("_linalg_cholesky", &s::cholesky, "a"_a, "info"_a, "a_at"_a.none(),
        "Replace the lower triangle by its factor.");
  m.def("_linalg_qr", &s::qr, "a"_a, "columns"_a, "tau"_a,
        "Factor the first columns into R and reflectors.");
  m.def("_linalg_make_q", &s::make_q, "a"_a, "reflectors"_a, "tau"_a, "Replace reflectors by Q.");
  m.def("_linalg_eigh", &s::eigh, "a"_a, "values"_a, "info"_a, "vectors"_a, "lower"_a, "batched"_a,
        "Compute eigenvalues of Hermitian matrices, and replace a by the vectors.");
  m.def("_linalg_eig", &s::eig, "a"_a, "values"_a, "vectors"_a.none(), "info"_a,
        "Compute eigenvalues, and vectors, of general matrices.");
  m.def(
      "_linalg_svd", &s::svd, "method"_a, "a"_a, "values"_a, "u"_a, "v"_a, "info"_a, "vectors"_a,
      "full"_a,
      "Decompose matrices that have no more columns than rows. Returns by how much small singular "
      "values were shifted.");
}

}  // namespace gpuinterop
