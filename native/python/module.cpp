// gpuinterop._core: only the list of its parts. Importing it touches no driver.
#include "python/raise.hpp"
#include "python/register.hpp"

NB_MODULE(_core, m) {
  m.doc() = "The native core of gpuinterop.";
  gpuinterop::register_errors();
  gpuinterop::register_array(m);
  gpuinterop::register_cuda(m);
  gpuinterop::register_exchange(m);
  gpuinterop::register_ops(m);
  gpuinterop::register_converters(m);
}
