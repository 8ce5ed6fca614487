// gpuinterop._core: only the list of its parts. Importing it touches no driver.
#include "python/raise.hpp"
#include "python/register.hpp"

NB_MODULE(_core, m) {
  // A stream or an array that something still holds when the process ends is nobody's mistake.
  nanobind::set_leak_warnings(false);
  m.doc() = "The native core of gpuinterop.";
  gpuinterop::register_errors();
  gpuinterop::register_array(m);
  gpuinterop::register_cuda(m);
  gpuinterop::register_exchange(m);
  gpuinterop::register_ops(m);
  gpuinterop::register_converters(m);
  gpuinterop::register_plans(m);
  gpuinterop::register_blas(m);
}
